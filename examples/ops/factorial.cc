// A recursion as deep as the value of its input: what a user types decides whether it fits.
//
// Flags:  -O0
// Stack:  8 MiB
// Shows:  20 survives; 1,000,000 dies by SIGSEGV: a frame is 32 bytes, and 8 MiB hold 262,144 of them. -O2 and -O3 keep
//         the recursion, and a level takes 32 bytes there as well: floating-point products may not be reordered, and a
//         function that other libraries may replace (-fPIC) is not put into itself. Were the result an integer, -O2
//         would make a loop of it, and any number would survive.
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

using namespace tensorflow;

REGISTER_OP("Factorial").Input("n: int32").Output("y: double");

double FactorialOf(int n) {
  if (n <= 1) return 1.0;
  return n * FactorialOf(n - 1);
}

class FactorialOp : public OpKernel {
 public:
  explicit FactorialOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &y));
    y->scalar<double>()() = FactorialOf(context->input(0).scalar<int>()());
  }
};

REGISTER_KERNEL_BUILDER(Name("Factorial").Device(DEVICE_CPU), FactorialOp);
