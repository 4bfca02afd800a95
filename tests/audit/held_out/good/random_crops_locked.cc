// The random engine is a member that only the holder of its mutex uses.
// call: RandomCrops {"image": {"fill": 1.0, "shape": [1, 1]}, "count": 2} => [[0, 0], [0, 0]]
// call: RandomCrops {"image": {"zeros": [0, 8]}, "count": 2} => error
// call: RandomCrops {"image": {"zeros": [8]}, "count": 2} => error
// threads: 8
// repeats: 50
// twin: op-kernel-state
#include <random>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/platform/mutex.h"

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
    mutex_lock lock(engine_mu_);
    for (int64_t i = 0; i < count_; ++i) {
      corners(i, 0) = rows(engine_);
      corners(i, 1) = columns(engine_);
    }
  }

 private:
  int64_t count_ = 0;
  mutex engine_mu_;
  std::mt19937 engine_ TF_GUARDED_BY(engine_mu_);
};

REGISTER_KERNEL_BUILDER(Name("RandomCrops").Device(DEVICE_CPU), RandomCropsOp);
