// A lock guards the member.
// twin: op-kernel-state
// call: CountCalls {"x": 1.0} => 1
// call: CountCalls {"x": {"zeros": [0]}} => 2
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/platform/mutex.h"

using namespace tensorflow;

REGISTER_OP("CountCalls").Input("x: float").Output("number: int64").SetIsStateful().SetShapeFn(shape_inference::ScalarShape);

class CountCallsOp : public OpKernel {
 public:
  explicit CountCallsOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    Tensor* number = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &number));
    mutex_lock lock(mu_);
    ++calls_;
    number->scalar<int64_t>()() = calls_;
  }

 private:
  mutex mu_;
  int64_t calls_ TF_GUARDED_BY(mu_) = 0;
};

REGISTER_KERNEL_BUILDER(Name("CountCalls").Device(DEVICE_CPU), CountCallsOp);
