// An array of ten integers, and the eleventh is written.
//
// Flags:  -O1, and again -O1 -fstack-protector-strong (which Ubuntu's g++ adds by itself and Debian's does not)
// Stack:  8 MiB
// Shows:  survives without the protector: g++ -O1 leaves room behind the array, and the eleventh lands there. With the
//         protector it dies by SIGABRT, "*** stack smashing detected ***: terminated".
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

using namespace tensorflow;

REGISTER_OP("ArrayOfTen").Input("n: int32").Output("y: int32");

// The index comes from outside: with the constant 10 in its place g++ may drop the write as undefined.
__attribute__((noinline)) int FillAndSum(int n) {
  int a[10];
  for (int i = 0; i < n; ++i) a[i] = i;
  int sum = 0;
  for (int i = 0; i < 10; ++i) sum += a[i];
  return sum;
}

class ArrayOfTenOp : public OpKernel {
 public:
  explicit ArrayOfTenOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &y));
    y->scalar<int>()() = FillAndSum(context->input(0).scalar<int>()());
  }
};

REGISTER_KERNEL_BUILDER(Name("ArrayOfTen").Device(DEVICE_CPU), ArrayOfTenOp);
