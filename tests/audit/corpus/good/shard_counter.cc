// Each shard counts for itself and adds once, with an atomic.
// twin: op-shared-write
// call: CountPositive {"x": {"fill": 1.0, "shape": [200000], "dtype": "float32"}} => 200000
// call: CountPositive {"x": [1.0, -1.0, 0.0]} => 1
// call: CountPositive {"x": {"zeros": [0]}} => 0
#include <atomic>

#include "tensorflow/core/util/work_sharder.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

REGISTER_OP("CountPositive").Input("x: float").Output("count: int64").SetShapeFn(shape_inference::ScalarShape);

class CountPositiveOp : public OpKernel {
 public:
  explicit CountPositiveOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const auto x = context->input(0).flat<float>();
    Tensor* count = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &count));
    std::atomic<int64_t> total{0};
    auto* workers = context->device()->tensorflow_cpu_worker_threads();
    Shard(workers->num_threads, workers->workers, x.size(), 5000, [&](int64_t begin, int64_t end) {
      int64_t mine = 0;
      for (int64_t i = begin; i < end; ++i) {
        if (x(i) > 0.0f) ++mine;
      }
      total += mine;
    });
    count->scalar<int64_t>()() = total;
  }
};

REGISTER_KERNEL_BUILDER(Name("CountPositive").Device(DEVICE_CPU), CountPositiveOp);

}  // namespace tensorflow
