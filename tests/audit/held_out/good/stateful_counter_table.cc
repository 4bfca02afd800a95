// A table that lives in the resource manager, found or made under a lock, with a reference held while it is used.
// call: CountWords {"words": ["a", "b", "a"], "table": "t1"} => [1, 1, 2]
// call: CountWords {"words": ["a"], "table": "t1"} => any
// call: CountWords {"words": {"zeros": [0], "dtype": "string"}, "table": ""} => any
// twin: op-kernel-state, op-null-input, op-status-ignored
#include <string>
#include <unordered_map>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/platform/mutex.h"

namespace tensorflow {
namespace {

class CounterTable : public ResourceBase {
 public:
  std::string DebugString() const override { return "CounterTable"; }

  int64_t Increment(const std::string& key) TF_LOCKS_EXCLUDED(mu_) {
    mutex_lock lock(mu_);
    return ++counts_[key];
  }

  size_t size() const {
    tf_shared_lock lock(mu_);
    return counts_.size();
  }

 private:
  mutable mutex mu_;
  std::unordered_map<std::string, int64_t> counts_ TF_GUARDED_BY(mu_);
};

class CountWordsOp : public OpKernel {
 public:
  explicit CountWordsOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("table", &name_));
  }

  void Compute(OpKernelContext* ctx) override {
    core::RefCountPtr<CounterTable> table;
    ResourceMgr* manager = ctx->resource_manager();
    OP_REQUIRES(ctx, manager != nullptr, errors::Internal("there is no resource manager"));
    CounterTable* raw = nullptr;
    OP_REQUIRES_OK(ctx, manager->LookupOrCreate<CounterTable>(manager->default_container(), name_, &raw,
                                                              [](CounterTable** made) {
                                                                *made = new CounterTable;
                                                                return absl::OkStatus();
                                                              }));
    table.reset(raw);
    const Tensor& words_tensor = ctx->input(0);
    const auto words = words_tensor.flat<tstring>();
    Tensor* counts_tensor = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output("counts", words_tensor.shape(), &counts_tensor));
    auto counts = counts_tensor->flat<int64_t>();
    for (int64_t i = 0; i < words.size(); ++i) counts(i) = table->Increment(std::string(words(i)));
    VLOG(2) << name_ << " has " << table->size() << " words";
  }

 private:
  std::string name_;
};

}  // namespace

REGISTER_OP("CountWords")
    .Input("words: string")
    .Attr("table: string")
    .Output("counts: int64")
    .SetIsStateful()
    .SetShapeFn(shape_inference::UnchangedShape);
REGISTER_KERNEL_BUILDER(Name("CountWords").Device(DEVICE_CPU), CountWordsOp);

}  // namespace tensorflow
