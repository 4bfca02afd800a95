// Height times width from data, in 32 bits.
// call: BlankImage {"size": {"value": [65536, 65537], "dtype": "int32"}} => error
// build: asan
// dies: asan
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

REGISTER_OP("BlankImage")
    .Input("size: int32")
    .Output("image: uint8")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      c->set_output(0, c->UnknownShapeOfRank(1));
      return OkStatus();
    });

class BlankImageOp : public OpKernel {
 public:
  explicit BlankImageOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& size_tensor = context->input(0);
    OP_REQUIRES(context, size_tensor.dims() == 1 && size_tensor.NumElements() == 2, errors::InvalidArgument("size needs 2 elements"));
    const auto size = size_tensor.vec<int32>();
    OP_REQUIRES(context, size(0) > 0 && size(1) > 0, errors::InvalidArgument("size must be positive"));
    const int32 pixels = size(0) * size(1);  // expect: op-size-overflow
    OP_REQUIRES(context, pixels >= 0 && pixels <= 1 << 24, errors::InvalidArgument("the image is too large"));
    Tensor* image = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({pixels}), &image));
    image->flat<uint8>().setZero();
  }
};

REGISTER_KERNEL_BUILDER(Name("BlankImage").Device(DEVICE_CPU), BlankImageOp);

}  // namespace tensorflow
