#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

using namespace tensorflow;

REGISTER_OP("Corner").Input("x: float").Output("y: float");
REGISTER_OP("CheckedCorner").Input("x: float").Output("y: float");

template <bool checked>
class CornerOp : public OpKernel {
 public:
  explicit CornerOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& x = context->input(0);
    if (checked) {
      OP_REQUIRES(context, x.dims() == 2 && x.NumElements() > 0, errors::InvalidArgument("x must be a matrix"));
    }
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &y));
    const auto in = x.matrix<float>();  // without a check, this aborts
    y->scalar<float>()() = in(0, 0);
  }
};

REGISTER_KERNEL_BUILDER(Name("Corner").Device(DEVICE_CPU), CornerOp<false>);
REGISTER_KERNEL_BUILDER(Name("CheckedCorner").Device(DEVICE_CPU), CornerOp<true>);
