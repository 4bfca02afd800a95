// After an error in the callback, done is called there and once more at its end.
// call: AsyncRoot {"x": {"value": [-1.0]}} => error
// graph: yes
// dies: SIGSEGV
#include <cmath>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

REGISTER_OP("AsyncRoot").Input("x: float").Output("y: float").SetShapeFn(shape_inference::UnchangedShape);

class AsyncRootOp : public AsyncOpKernel {
 public:
  explicit AsyncRootOp(OpKernelConstruction* context) : AsyncOpKernel(context) {}

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    Tensor* y = nullptr;
    OP_REQUIRES_OK_ASYNC(context, context->allocate_output(0, context->input(0).shape(), &y), done);
    auto* pool = context->device()->tensorflow_cpu_worker_threads()->workers;
    pool->Schedule([context, y, done = std::move(done)]() {
      const auto in = context->input(0).flat<float>();
      auto out = y->flat<float>();
      for (int64_t i = 0; i < in.size(); ++i) {
        if (in(i) < 0) {
          context->SetStatus(errors::InvalidArgument("x must not be negative"));
          done();
          break;
        }
        out(i) = std::sqrt(in(i));
      }
      done();  // expect: op-done-not-called
    });
  }
};

REGISTER_KERNEL_BUILDER(Name("AsyncRoot").Device(DEVICE_CPU), AsyncRootOp);

}  // namespace tensorflow
