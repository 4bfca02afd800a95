// Keys of buckets, formatted into 32 characters: the name of a feature is an attribute of any length.
// call: BucketKeys {"values": {"value": [7], "dtype": "int64"}, "feature": "a_feature_with_a_name_longer_than_thirty_two_characters", "buckets": 10} => any
// dies: asan
#include <cinttypes>
#include <cstdio>
#include <string>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"

namespace tensorflow {

REGISTER_OP("BucketKeys")
    .Input("values: int64")
    .Attr("feature: string")
    .Attr("buckets: int >= 1")
    .Output("keys: string")
    .SetShapeFn(shape_inference::UnchangedShape);

class KeyFormatter {
 public:
  KeyFormatter(const std::string& feature, int64_t buckets) : feature_(feature), buckets_(buckets) {}
  virtual ~KeyFormatter() {}

  virtual tstring Format(int64_t value) const {
    char key[32];
    const int64_t bucket = ((value % buckets_) + buckets_) % buckets_;
    const int size = sprintf(key, "%s#%" PRId64, feature_.c_str(), bucket);  // expect: op-string-overflow
    return tstring(key, size);
  }

 private:
  const std::string feature_;
  const int64_t buckets_;
};

class BucketKeysOp : public OpKernel {
 public:
  explicit BucketKeysOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    std::string feature;
    int64_t buckets;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("feature", &feature));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("buckets", &buckets));
    OP_REQUIRES(ctx, buckets > 0, errors::InvalidArgument("buckets must be positive"));
    OP_REQUIRES(ctx, !feature.empty(), errors::InvalidArgument("feature must have a name"));
    formatter_.reset(new KeyFormatter(feature, buckets));
  }

  void Compute(OpKernelContext* ctx) override {
    const Tensor& values = ctx->input(0);
    Tensor* keys = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, values.shape(), &keys));
    const auto in = values.flat<int64_t>();
    auto out = keys->flat<tstring>();
    for (int64_t i = 0; i < in.size(); ++i) out(i) = formatter_->Format(in(i));
  }

 private:
  std::unique_ptr<KeyFormatter> formatter_;
};

REGISTER_KERNEL_BUILDER(Name("BucketKeys").Device(DEVICE_CPU), BucketKeysOp);

}  // namespace tensorflow
