// twin: op-index-unchecked
// call: CountBins {"bins": [1, 1, 3, 9, -1], "size": 4} => [0, 2, 0, 1]
// call: CountBins {"bins": [-300000000], "size": 4} => [0, 0, 0, 0]
// call: CountBins {"bins": {"zeros": [0], "dtype": "int32"}, "size": 2} => [0, 0]
// call: CountBins {"bins": 0, "size": 2} => [1, 0]
// call: CountBins {"bins": [1], "size": 9223372036854775807} => error
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

using namespace tensorflow;

REGISTER_OP("CountBins")
    .Input("bins: int32")
    .Attr("size: int >= 1 = 16")
    .Output("counts: int64")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      int64_t size;
      TF_RETURN_IF_ERROR(c->GetAttr("size", &size));
      c->set_output(0, c->Vector(size));
      return absl::OkStatus();
    });

class CountBinsOp : public OpKernel {
 public:
  explicit CountBinsOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("size", &size_));
    OP_REQUIRES(ctx, size_ <= 1 << 20, errors::InvalidArgument("size must be at most ", 1 << 20));
  }

  void Compute(OpKernelContext* ctx) override {
    auto bins = ctx->input(0).flat<int32>();
    Tensor* counts_t = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, {size_}, &counts_t));
    auto counts = counts_t->flat<int64_t>();
    counts.setZero();
    for (int64_t i = 0; i < bins.size(); ++i) {
      if (bins(i) < 0 || bins(i) >= size_) continue;
      counts(bins(i)) += 1;
    }
  }

 private:
  int64_t size_;
};

REGISTER_KERNEL_BUILDER(Name("CountBins").Device(DEVICE_CPU), CountBinsOp);
