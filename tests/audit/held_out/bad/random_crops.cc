// The random engine is a member, used by Compute without a lock.
// call: RandomCrops {"image": {"fill": 1.0, "shape": [8, 8]}, "count": 200} => any
// advice: two calls at once draw the same numbers, or an engine in between two states
#include <random>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"

using namespace tensorflow;

REGISTER_OP("RandomCrops")
    .Input("image: float")
    .Attr("count: int >= 1")
    .Attr("seed: int = 1")
    .Output("corners: int64")
    .SetIsStateful()
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      c->set_output(0, c->Matrix(c->UnknownDim(), 2));
      return absl::OkStatus();
    });

class RandomCropsOp : public OpKernel {
 public:
  explicit RandomCropsOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("count", &count_));
    int64_t seed;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("seed", &seed));
    OP_REQUIRES(ctx, count_ >= 1 && count_ <= 100000, errors::InvalidArgument("count must be in [1, 100000]"));
    engine_.seed(static_cast<std::mt19937::result_type>(seed));
  }

  void Compute(OpKernelContext* ctx) override {
    const Tensor& image = ctx->input(0);
    OP_REQUIRES(ctx, TensorShapeUtils::IsMatrix(image.shape()), errors::InvalidArgument("image must be a matrix"));
    OP_REQUIRES(ctx, image.NumElements() > 0, errors::InvalidArgument("image is empty"));
    Tensor* corners_tensor = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, TensorShape({count_, 2}), &corners_tensor));
    auto corners = corners_tensor->matrix<int64_t>();
    std::uniform_int_distribution<int64_t> rows(0, image.dim_size(0) - 1), columns(0, image.dim_size(1) - 1);
    for (int64_t i = 0; i < count_; ++i) {
      corners(i, 0) = rows(engine_);  // expect: op-kernel-state
      corners(i, 1) = columns(engine_);  // or: op-kernel-state
    }
  }

 private:
  int64_t count_ = 0;
  std::mt19937 engine_;
};

REGISTER_KERNEL_BUILDER(Name("RandomCrops").Device(DEVICE_CPU), RandomCropsOp);
