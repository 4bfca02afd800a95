// Each round schedules the next one on the thread pool: the stack does not grow, and done is called once.
// twin: op-recursion, op-done-not-called
// call: AsyncRounds {"x": [1.0, 2.0], "rounds": 3} => [8.0, 16.0]
// call: AsyncRounds {"x": {"zeros": [0]}, "rounds": 0} => []
// call: AsyncRounds {"x": [1.0], "rounds": 20000} => any
// call: AsyncRounds {"x": [1.0], "rounds": -1} => error
#include <functional>
#include <memory>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

REGISTER_OP("AsyncRounds")
    .Input("x: float")
    .Attr("rounds: int >= 0")
    .Output("y: float")
    .SetShapeFn(shape_inference::UnchangedShape);

class AsyncRoundsOp : public AsyncOpKernel {
 public:
  explicit AsyncRoundsOp(OpKernelConstruction* context) : AsyncOpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("rounds", &rounds_));
    OP_REQUIRES(context, rounds_ <= 100000, errors::InvalidArgument("at most 100000 rounds"));
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    Tensor* y = nullptr;
    OP_REQUIRES_OK_ASYNC(context, context->allocate_output(0, context->input(0).shape(), &y), done);
    y->flat<float>() = context->input(0).flat<float>();
    StartRound(context, y, rounds_, std::move(done));
  }

 private:
  void StartRound(OpKernelContext* context, Tensor* y, int64_t left, DoneCallback done) {
    if (left == 0) {
      done();
      return;
    }
    auto* pool = context->device()->tensorflow_cpu_worker_threads()->workers;
    pool->Schedule([this, context, y, left, done = std::move(done)]() {
      auto values = y->flat<float>();
      for (int64_t i = 0; i < values.size(); ++i) values(i) *= 2.0f;
      StartRound(context, y, left - 1, done);
    });
  }

  int64_t rounds_;
};

REGISTER_KERNEL_BUILDER(Name("AsyncRounds").Device(DEVICE_CPU), AsyncRoundsOp);

}  // namespace tensorflow
