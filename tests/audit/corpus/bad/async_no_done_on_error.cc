// An asynchronous kernel: for empty input it returns and never calls done.
// call: AsyncFirst {"x": {"zeros": [0]}} => error
// hangs: the caller waits for done
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

REGISTER_OP("AsyncFirst").Input("x: float").Output("y: float").SetShapeFn(shape_inference::ScalarShape);

class AsyncFirstOp : public AsyncOpKernel {
 public:
  explicit AsyncFirstOp(OpKernelConstruction* context) : AsyncOpKernel(context) {}

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {  // or: op-done-not-called
    const Tensor& x = context->input(0);
    if (x.NumElements() == 0) {
      context->SetStatus(errors::InvalidArgument("x must not be empty"));
      return;  // expect: op-done-not-called
    }
    Tensor* y = nullptr;
    OP_REQUIRES_OK_ASYNC(context, context->allocate_output(0, TensorShape({}), &y), done);
    auto* pool = context->device()->tensorflow_cpu_worker_threads()->workers;
    pool->Schedule([context, y, done]() {
      y->scalar<float>()() = context->input(0).flat<float>()(0);
      done();
    });
  }
};

REGISTER_KERNEL_BUILDER(Name("AsyncFirst").Device(DEVICE_CPU), AsyncFirstOp);

}  // namespace tensorflow
