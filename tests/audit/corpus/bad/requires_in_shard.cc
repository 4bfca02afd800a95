// OP_REQUIRES in the lambda leaves the lambda only: the kernel goes on and reports success or fills in the rest.
// call: LogEach {"x": [1.0, -1.0]} => error
// advice: the error is reported in the end, after the kernel has worked with elements that were never written
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
    auto work = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        OP_REQUIRES(context, x(i) > 0, errors::InvalidArgument("x must be positive"));  // expect: op-requires-in-lambda
        y(i) = std::log(x(i));
      }
    };
    auto threads = *context->device()->tensorflow_cpu_worker_threads();
    Shard(threads.num_threads, threads.workers, x.size(), 100, work);
    Tensor* sum = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(1, TensorShape({}), &sum));
    float total = 0;
    for (int64_t i = 0; i < y.size(); ++i) total += y(i);
    sum->scalar<float>()() = total;
  }
};

REGISTER_KERNEL_BUILDER(Name("LogEach").Device(DEVICE_CPU), LogEachOp);

}  // namespace tensorflow
