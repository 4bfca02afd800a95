// Ten million integers as a local array: 40,000,000 bytes in one stack frame.
//
// Flags:  -O2
// Stack:  8 MiB
// Shows:  dies by SIGSEGV at the first call after the frame was made (40,000,048 bytes at once, so the fault lies far
//         below the guard page). Left unread, the array would be removed by -O2, and nothing would happen.
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

using namespace tensorflow;

REGISTER_OP("StackArray").Input("seed: int32").Output("y: int32");

class StackArrayOp : public OpKernel {
 public:
  explicit StackArrayOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const int seed = context->input(0).scalar<int>()();
    int a[10000000];
    for (int i = 0; i < 10000000; ++i) a[i] = i ^ seed;
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &y));
    y->scalar<int>()() = a[seed];
  }
};

REGISTER_KERNEL_BUILDER(Name("StackArray").Device(DEVICE_CPU), StackArrayOp);
