// A helper that calls itself 100,000 times. The base case is there and it is right.
//
// Flags:  -O0, and again -O0 -g and -O2
// Stack:  8 MiB, and again 2,000,000 bytes (what the main thread of Windows' python.exe has)
// Shows:  survives 8 MiB: a frame is 32 bytes, the stack's high-water mark 3,148 KiB. Dies by SIGSEGV in 2,000,000
//         bytes. With -O2 g++ sees that nothing is done and leaves `ret` of the whole helper (a tail call becomes a
//         loop): it survives in any stack and uses 92 KiB.
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

using namespace tensorflow;

REGISTER_OP("DeepRecursion").Input("x: float").Output("y: float");

void Recurse(int n) {
  if (n == 0) return;
  Recurse(n - 1);
}

class DeepRecursionOp : public OpKernel {
 public:
  explicit DeepRecursionOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    Recurse(100000);
    context->set_output(0, context->input(0));
  }
};

REGISTER_KERNEL_BUILDER(Name("DeepRecursion").Device(DEVICE_CPU), DeepRecursionOp);
