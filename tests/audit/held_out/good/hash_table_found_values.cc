// A table from keys to values; a key that is missing is an error.
// call: HashTableValues {"keys": {"value": [1, 2], "dtype": "int64"}, "values": [0.5, 1.5], "query": {"value": [7], "dtype": "int64"}} => error
// call: HashTableValues {"keys": {"value": [1, 2], "dtype": "int64"}, "values": [0.5, 1.5], "query": {"value": [2], "dtype": "int64"}} => [1.5]
// call: HashTableValues {"keys": {"value": [1, 2], "dtype": "int64"}, "values": [0.5], "query": {"value": [2], "dtype": "int64"}} => error
// twin: op-null-input
#include <map>
#include <unordered_map>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"

namespace tensorflow {

REGISTER_OP("HashTableValues")
    .Attr("K: {int32, int64}")
    .Attr("V: {float, double}")
    .Input("keys: K")
    .Input("values: V")
    .Input("query: K")
    .Output("found: V")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      c->set_output(0, c->input(2));
      return absl::OkStatus();
    });

template <typename K, typename V>
class LocalTable {
 public:
  using Map = std::unordered_map<K, V>;

  absl::Status Insert(const Tensor& keys, const Tensor& values) {
    const auto k = keys.flat<K>();
    const auto v = values.flat<V>();
    if (k.size() != v.size()) return errors::InvalidArgument("there are ", k.size(), " keys and ", v.size(), " values");
    for (int64_t i = 0; i < k.size(); ++i) {
      if (!map_.emplace(k(i), v(i)).second) return errors::AlreadyExists("key ", k(i), " comes twice");
    }
    return absl::OkStatus();
  }

  absl::Status Find(const Tensor& query, Tensor* found) const {
    const auto q = query.flat<K>();
    auto f = found->flat<V>();
    for (int64_t i = 0; i < q.size(); ++i) {
      const typename Map::const_iterator it = map_.find(q(i));
      if (it == map_.end()) return errors::NotFound("key ", q(i));
      f(i) = it->second;
    }
    return absl::OkStatus();
  }

 private:
  Map map_;
};

template <typename K, typename V>
class HashTableValuesOp : public OpKernel {
 public:
  explicit HashTableValuesOp(OpKernelConstruction* ctx) : OpKernel(ctx) {}

  void Compute(OpKernelContext* ctx) override {
    LocalTable<K, V> table;
    OP_REQUIRES_OK(ctx, table.Insert(ctx->input(0), ctx->input(1)));
    Tensor* found = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, ctx->input(2).shape(), &found));
    OP_REQUIRES_OK(ctx, table.Find(ctx->input(2), found));
  }
};

#define REGISTER_TABLE(K, V)                                                                  \
  REGISTER_KERNEL_BUILDER(                                                                    \
      Name("HashTableValues").Device(DEVICE_CPU).TypeConstraint<K>("K").TypeConstraint<V>("V"), \
      HashTableValuesOp<K, V>)
REGISTER_TABLE(int32, float);
REGISTER_TABLE(int32, double);
REGISTER_TABLE(int64_t, float);
REGISTER_TABLE(int64_t, double);
#undef REGISTER_TABLE

}  // namespace tensorflow
