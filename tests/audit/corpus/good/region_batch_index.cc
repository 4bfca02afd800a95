// twin: op-index-unchecked
// call: RegionMax {"images": [[[1.0, 2.0], [3.0, 4.0]]], "boxes": {"value": [[0, 0, 0, 1, 9], [0, -5, 0, 9, 1]], "dtype": "int32"}} => [2.0, 3.0]
// call: RegionMax {"images": {"zeros": [2, 4, 4]}, "boxes": {"value": [[90000000, 0, 0, 2, 2]], "dtype": "int32"}} => error
// call: RegionMax {"images": {"zeros": [2, 4, 4]}, "boxes": {"value": [[-1, 0, 0, 2, 2]], "dtype": "int32"}} => error
// call: RegionMax {"images": {"zeros": [2, 4]}, "boxes": {"value": [[0, 0, 0, 2, 2]], "dtype": "int32"}} => error
// call: RegionMax {"images": {"zeros": [0, 4, 4]}, "boxes": {"zeros": [0, 5], "dtype": "int32"}} => []
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

REGISTER_OP("RegionMax")
    .Input("images: float")
    .Input("boxes: int32")
    .Output("peaks: float")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      shape_inference::ShapeHandle images, boxes;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 3, &images));
      TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 2, &boxes));
      c->set_output(0, c->Vector(c->Dim(boxes, 0)));
      return OkStatus();
    });

class RegionMaxOp : public OpKernel {
 public:
  explicit RegionMaxOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& images_tensor = context->input(0);
    const Tensor& boxes_tensor = context->input(1);
    OP_REQUIRES(context, images_tensor.dims() == 3, errors::InvalidArgument("images must be [batch, height, width]"));
    OP_REQUIRES(context, boxes_tensor.dims() == 2 && boxes_tensor.dim_size(1) == 5,
                errors::InvalidArgument("boxes must be [n, 5]"));
    const auto images = images_tensor.tensor<float, 3>();
    const auto boxes = boxes_tensor.matrix<int32>();
    const int64_t height = images_tensor.dim_size(1);
    const int64_t width = images_tensor.dim_size(2);
    Tensor* peaks = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({boxes_tensor.dim_size(0)}), &peaks));
    auto out = peaks->vec<float>();
    for (int64_t b = 0; b < boxes_tensor.dim_size(0); ++b) {
      const int32 image = boxes(b, 0);
      OP_REQUIRES(context, image >= 0 && image < images_tensor.dim_size(0), errors::OutOfRange("no image ", image));
      const int64_t top = std::max<int64_t>(boxes(b, 1), 0);
      const int64_t left = std::max<int64_t>(boxes(b, 2), 0);
      const int64_t bottom = std::min<int64_t>(boxes(b, 3), height);
      const int64_t right = std::min<int64_t>(boxes(b, 4), width);
      float peak = std::numeric_limits<float>::lowest();
      for (int64_t y = top; y < bottom; ++y) {
        for (int64_t x = left; x < right; ++x) {
          peak = std::max(peak, images(image, y, x));
        }
      }
      out(b) = peak;
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("RegionMax").Device(DEVICE_CPU), RegionMaxOp);

}  // namespace tensorflow
