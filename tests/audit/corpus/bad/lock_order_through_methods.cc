// A cache and its statistics lock each other, each through a method of the other.
// call: CacheAdd {"key": 1} => any
// call: CacheReport {"key": 1} => any
// threads: 8
// repeats: 400
// hangs: one thread waits for the statistics, the other for the cache
#include <map>
#include <vector>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

#include "tensorflow/core/platform/mutex.h"

namespace tensorflow {

class Cache {
 public:
  int64_t Add(int64_t key) {
    mutex_lock lock(entries_mu_);
    ++entries_[key];
    for (int64_t& each : recent_) each = each / 2 + key % 1024;
    return Note();  // expect: op-lock-order
  }

  int64_t Report() {
    mutex_lock lock(statistics_mu_);
    for (int64_t& each : hourly_) each = each / 2 + additions_;
    return additions_ * 1000 + Size();  // or: op-lock-order
  }

 private:
  int64_t Note() {
    mutex_lock lock(statistics_mu_);  // or: op-lock-order
    return ++additions_;
  }

  int64_t Size() {
    mutex_lock lock(entries_mu_);  // or: op-lock-order
    return static_cast<int64_t>(entries_.size());
  }

  mutex entries_mu_;
  mutex statistics_mu_;
  std::map<int64_t, int64_t> entries_;
  std::vector<int64_t> recent_ = std::vector<int64_t>(200000);
  std::vector<int64_t> hourly_ = std::vector<int64_t>(200000);
  int64_t additions_ = 0;
};

Cache* TheCache() {
  static Cache* cache = new Cache;
  return cache;
}

REGISTER_OP("CacheAdd").Input("key: int32").Output("count: int64").SetIsStateful().SetShapeFn(shape_inference::ScalarShape);
REGISTER_OP("CacheReport").Input("key: int32").Output("count: int64").SetIsStateful().SetShapeFn(shape_inference::ScalarShape);

class CacheAddOp : public OpKernel {
 public:
  explicit CacheAddOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& key = context->input(0);
    OP_REQUIRES(context, key.NumElements() == 1, errors::InvalidArgument("key must have one element"));
    Tensor* count = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &count));
    count->scalar<int64_t>()() = TheCache()->Add(key.flat<int32>()(0));
  }
};

class CacheReportOp : public OpKernel {
 public:
  explicit CacheReportOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    Tensor* count = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &count));
    count->scalar<int64_t>()() = TheCache()->Report();
  }
};

REGISTER_KERNEL_BUILDER(Name("CacheAdd").Device(DEVICE_CPU), CacheAddOp);
REGISTER_KERNEL_BUILDER(Name("CacheReport").Device(DEVICE_CPU), CacheReportOp);

}  // namespace tensorflow
