// past_the_end.cc as it should be: the loop ends where the output tensor does.
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

using namespace tensorflow;

REGISTER_OP("PastTheEnd").Input("x: float").Output("y: float");

class PastTheEndOp : public OpKernel {
 public:
  explicit PastTheEndOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& x = context->input(0);
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, x.shape(), &y));
    auto out = y->flat<float>();
    const int n = x.NumElements();
    for (int i = 0; i < n; ++i) out(i) = 1.0f;
  }
};

REGISTER_KERNEL_BUILDER(Name("PastTheEnd").Device(DEVICE_CPU), PastTheEndOp);
