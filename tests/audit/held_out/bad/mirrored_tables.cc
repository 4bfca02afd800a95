// A table and its mirror: inserting locks one and then the other, exporting the other way round.
// call: MirroredTables {"keys": {"value": [1, 2], "dtype": "int64"}, "export": false} => 2
// advice: two calls at once can wait for each other for ever
#include <unordered_map>
#include <vector>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/platform/mutex.h"

namespace tensorflow {
namespace {

class MirroredTable {
 public:
  void Insert(int64_t key, int64_t value) {
    mutex_lock forward_lock(forward_mu_);
    forward_[key] = value;
    mutex_lock backward_lock(backward_mu_);  // or: op-lock-order
    backward_[value] = key;
  }

  int64_t Export(std::vector<int64_t>* keys) {
    mutex_lock lock_b(backward_mu_);
    keys->reserve(backward_.size());
    for (const auto& entry : backward_) keys->push_back(entry.second);
    mutex_lock lock_f(forward_mu_);  // expect: op-lock-order
    return static_cast<int64_t>(forward_.size());
  }

 private:
  mutex forward_mu_;
  mutex backward_mu_;
  std::unordered_map<int64_t, int64_t> forward_ TF_GUARDED_BY(forward_mu_);
  std::unordered_map<int64_t, int64_t> backward_ TF_GUARDED_BY(backward_mu_);
};

}  // namespace

REGISTER_OP("MirroredTables")
    .Input("keys: int64")
    .Attr("export: bool")
    .Output("size: int64")
    .SetIsStateful()
    .SetShapeFn(shape_inference::ScalarShape);

class MirroredTablesOp : public OpKernel {
 public:
  explicit MirroredTablesOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("export", &export_));
  }

  void Compute(OpKernelContext* ctx) override {
    const auto keys = ctx->input(0).flat<int64_t>();
    for (int64_t i = 0; i < keys.size(); ++i) table_.Insert(keys(i), i);
    std::vector<int64_t> all;
    Tensor* size = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, TensorShape({}), &size));
    size->scalar<int64_t>()() = export_ ? table_.Export(&all) : keys.size();
  }

 private:
  MirroredTable table_;
  bool export_ = false;
};

REGISTER_KERNEL_BUILDER(Name("MirroredTables").Device(DEVICE_CPU), MirroredTablesOp);

}  // namespace tensorflow
