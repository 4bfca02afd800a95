// All shards add to one number.
// call: CountPositive {"x": {"fill": 1.0, "shape": [4000000], "dtype": "float32"}} => 4000000
// repeats: 5
// wrong: additions get lost
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
    volatile int64_t* total = count->flat<int64_t>().data();
    *total = 0;
    auto* workers = context->device()->tensorflow_cpu_worker_threads();
    Shard(workers->num_threads, workers->workers, x.size(), 5000, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        if (x(i) > 0.0f) *total += 1;  // expect: op-shared-write
      }
    });
  }
};

REGISTER_KERNEL_BUILDER(Name("CountPositive").Device(DEVICE_CPU), CountPositiveOp);

}  // namespace tensorflow
