// twin: op-requires-in-lambda
// call: LogEach {"x": [1.0, 1.0]} => [[0.0, 0.0], 0.0]
// call: LogEach {"x": [1.0, -1.0]} => error
// call: LogEach {"x": {"zeros": [0]}} => [[], 0.0]
#include <atomic>
#include <cmath>

#include "tensorflow/core/util/work_sharder.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

REGISTER_OP("LogEach").Input("x: float").Output("y: float").Output("sum: float").SetShapeFn([](shape_inference::InferenceContext* c) {
  c->set_output(0, c->input(0));
  c->set_output(1, c->Scalar());
  return OkStatus();
});

class LogEachOp : public OpKernel {
 public:
  explicit LogEachOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& x_tensor = context->input(0);
    Tensor* y_tensor = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, x_tensor.shape(), &y_tensor));
    const auto x = x_tensor.flat<float>();
    auto y = y_tensor->flat<float>();
    std::atomic<bool> negative{false};
    auto work = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        if (!(x(i) > 0)) {
          negative = true;
          return;
        }
        y(i) = std::log(x(i));
      }
    };
    auto threads = *context->device()->tensorflow_cpu_worker_threads();
    Shard(threads.num_threads, threads.workers, x.size(), 100, work);
    OP_REQUIRES(context, !negative, errors::InvalidArgument("x must be positive"));
    Tensor* sum = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(1, TensorShape({}), &sum));
    float total = 0;
    for (int64_t i = 0; i < y.size(); ++i) total += y(i);
    sum->scalar<float>()() = total;
  }
};

REGISTER_KERNEL_BUILDER(Name("LogEach").Device(DEVICE_CPU), LogEachOp);

}  // namespace tensorflow
