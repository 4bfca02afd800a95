// Compute counts its calls in a member, without a lock.
// call: CountCalls {"x": 1.0} => any
// advice: two calls can get the same number when several threads call; too rare to be seen here
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

using namespace tensorflow;

REGISTER_OP("CountCalls").Input("x: float").Output("number: int64").SetIsStateful().SetShapeFn(shape_inference::ScalarShape);

class CountCallsOp : public OpKernel {
 public:
  explicit CountCallsOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    Tensor* number = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &number));
    ++calls_;  // expect: op-kernel-state
    number->scalar<int64_t>()() = calls_;
  }

 private:
  int64_t calls_ = 0;
};

REGISTER_KERNEL_BUILDER(Name("CountCalls").Device(DEVICE_CPU), CountCallsOp);
