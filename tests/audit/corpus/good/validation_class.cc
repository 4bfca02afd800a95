// Inputs are read and checked by a class of its own, whose Init returns a Status; the kernel uses its fields.
// twin: op-rank-unchecked, op-index-unchecked, op-sizes-unrelated, op-element-unchecked
// call: PoolRegions {"image": [[1.0, 2.0], [3.0, 4.0]], "boxes": [[0, 0, 2, 2], [1, 1, 2, 2]], "scales": [1.0, 10.0]} => [4.0, 40.0]
// call: PoolRegions {"image": [[1.0, 2.0], [3.0, 4.0]], "boxes": [[0, 0, 3, 2]], "scales": [1.0]} => error
// call: PoolRegions {"image": [[1.0, 2.0], [3.0, 4.0]], "boxes": [[-1, 0, 1, 2]], "scales": [1.0]} => error
// call: PoolRegions {"image": [[1.0, 2.0], [3.0, 4.0]], "boxes": [[1, 0, 1, 2]], "scales": [1.0]} => error
// call: PoolRegions {"image": [[1.0, 2.0], [3.0, 4.0]], "boxes": [[0, 0, 1, 1]], "scales": [1.0, 2.0]} => error
// call: PoolRegions {"image": [1.0], "boxes": [[0, 0, 1, 1]], "scales": [1.0]} => error
// call: PoolRegions {"image": {"zeros": [0, 0]}, "boxes": {"zeros": [0, 4], "dtype": "int32"}, "scales": {"zeros": [0]}} => []
#include "validation_class.h"

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

REGISTER_OP("PoolRegions")
    .Input("image: float")
    .Input("boxes: int32")
    .Input("scales: float")
    .Output("peaks: float")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      shape_inference::ShapeHandle image, boxes, scales;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &image));
      TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 2, &boxes));
      TF_RETURN_IF_ERROR(c->WithRank(c->input(2), 1, &scales));
      c->set_output(0, c->Vector(c->Dim(boxes, 0)));
      return OkStatus();
    });

class PoolRegionsOp : public OpKernel {
 public:
  explicit PoolRegionsOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    regions::Regions regions;
    OP_REQUIRES_OK(context, regions.Init(context->input(0), context->input(1), context->input(2)));
    Tensor* peaks = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({regions.count}), &peaks));
    const auto image = context->input(0).matrix<float>();
    const auto boxes = context->input(1).matrix<int32>();
    const auto scales = context->input(2).vec<float>();
    auto out = peaks->vec<float>();
    for (int64_t b = 0; b < regions.count; ++b) {
      float peak = image(boxes(b, 0), boxes(b, 1));
      for (int32 y = boxes(b, 0); y < boxes(b, 2); ++y) {
        for (int32 x = boxes(b, 1); x < boxes(b, 3); ++x) peak = std::max(peak, image(y, x));
      }
      out(b) = peak * scales(b);
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("PoolRegions").Device(DEVICE_CPU), PoolRegionsOp);

}  // namespace tensorflow
