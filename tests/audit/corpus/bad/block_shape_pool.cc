// Pooling with a window of an input: rank and count are checked by a loop, but the window may contain 0.
// call: BlockPool {"x": {"zeros": [4, 4]}, "window": {"value": [2, 0], "dtype": "int32"}} => error
// dies: SIGFPE
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

REGISTER_OP("BlockPool")
    .Input("x: float")
    .Input("window: int32")
    .Output("pooled: float")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      shape_inference::ShapeHandle x;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &x));
      c->set_output(0, c->UnknownShapeOfRank(2));
      return OkStatus();
    });

class BlockPoolOp : public OpKernel {
 public:
  explicit BlockPoolOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& x = context->input(0);
    const Tensor& window = context->input(1);
    OP_REQUIRES(context, x.dims() == 2, errors::InvalidArgument("x must be a matrix"));
    OP_REQUIRES(context, window.dims() == 1 && window.dim_size(0) == x.dims(),
                errors::InvalidArgument("window needs an element for each dimension of x"));
    const auto sizes = window.vec<int32>();
    TensorShape shape;
    for (int d = 0; d < x.dims(); ++d) {
      OP_REQUIRES(context, sizes(d) >= 0, errors::InvalidArgument("window must not be negative"));
      OP_REQUIRES_OK(context, shape.AddDimWithStatus(x.dim_size(d) / sizes(d)));  // expect: op-division-unchecked
    }
    Tensor* pooled = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, shape, &pooled));
    const auto in = x.matrix<float>();
    auto out = pooled->matrix<float>();
    for (int64_t r = 0; r < out.dimension(0); ++r) {
      for (int64_t c = 0; c < out.dimension(1); ++c) {
        out(r, c) = in(r * sizes(0), c * sizes(1));
      }
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("BlockPool").Device(DEVICE_CPU), BlockPoolOp);

}  // namespace tensorflow
