// twin: op-done-not-called
// call: AsyncRoot {"x": [4.0, 9.0]} => [2.0, 3.0]
// call: AsyncRoot {"x": [-1.0]} => error
// call: AsyncRoot {"x": {"zeros": [0]}} => []
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
          break;
        }
        out(i) = std::sqrt(in(i));
      }
      done();
    });
  }
};

REGISTER_KERNEL_BUILDER(Name("AsyncRoot").Device(DEVICE_CPU), AsyncRootOp);

}  // namespace tensorflow
