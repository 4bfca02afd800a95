// Ten elements are written past the end of the output tensor. Tensors lie on the heap, so no stack is harmed.
//
// Flags:  -O2
// Stack:  8 MiB
// Shows:  depends on what lies behind: it survives where the allocator's padding takes the ten floats, and dies later
//         by SIGABRT where they hit another block's header: "double free or corruption (out)" for 10 elements, "malloc():
//         unaligned tcache chunk detected" for 100, neither of which is what happened. All seen here, by chance of layout.
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
    for (int i = 0; i < n + 10; ++i) out(i) = 1.0f;
  }
};

REGISTER_KERNEL_BUILDER(Name("PastTheEnd").Device(DEVICE_CPU), PastTheEndOp);
