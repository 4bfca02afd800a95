// Each shard writes its own rows, through pointers that are computed from the row; a second pass adds with a lock.
// twin: op-shared-write, op-requires-in-lambda
// call: SoftmaxRows {"x": [[0.0, 0.0], [1.0, 1.0]]} => [[[0.5, 0.5], [0.5, 0.5]], 2.0]
// call: SoftmaxRows {"x": {"zeros": [3, 0]}} => error
// call: SoftmaxRows {"x": {"zeros": [0, 3]}} => [[], 0.0]
// call: SoftmaxRows {"x": [1.0]} => error
#include <cmath>

#include "tensorflow/core/platform/mutex.h"
#include "tensorflow/core/util/work_sharder.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

REGISTER_OP("SoftmaxRows")
    .Input("x: float")
    .Output("y: float")
    .Output("total: float")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      shape_inference::ShapeHandle x;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &x));
      c->set_output(0, x);
      c->set_output(1, c->Scalar());
      return OkStatus();
    });

class SoftmaxRowsOp : public OpKernel {
 public:
  explicit SoftmaxRowsOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& x = context->input(0);
    OP_REQUIRES(context, TensorShapeUtils::IsMatrix(x.shape()), errors::InvalidArgument("x must be a matrix"));
    const int64_t rows = x.dim_size(0);
    const int64_t columns = x.dim_size(1);
    OP_REQUIRES(context, columns > 0, errors::InvalidArgument("x must have a column"));
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, x.shape(), &y));
    const float* from = x.flat<float>().data();
    float* to = y->flat<float>().data();
    mutex mu;
    double total = 0;
    auto work = [&](int64_t begin, int64_t end) {
      double mine = 0;
      for (int64_t row = begin; row < end; ++row) {
        const float* in = from + row * columns;
        float* out = to + row * columns;
        float largest = in[0];
        for (int64_t c = 1; c < columns; ++c) largest = std::max(largest, in[c]);
        float sum = 0;
        for (int64_t c = 0; c < columns; ++c) sum += out[c] = std::exp(in[c] - largest);
        for (int64_t c = 0; c < columns; ++c) mine += out[c] /= sum;
      }
      mutex_lock lock(mu);
      total += mine;
    };
    const auto& threads = *context->device()->tensorflow_cpu_worker_threads();
    Shard(threads.num_threads, threads.workers, rows, columns * 20, work);
    Tensor* total_tensor = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(1, TensorShape({}), &total_tensor));
    total_tensor->scalar<float>()() = static_cast<float>(total);
  }
};

REGISTER_KERNEL_BUILDER(Name("SoftmaxRows").Device(DEVICE_CPU), SoftmaxRowsOp);

}  // namespace tensorflow
