// Rolling fingerprints of n-grams: the ring of n hashes is written at position n once.
// call: NgramFingerprints {"tokens": [3, 1, 4, 1, 5], "n": 2} => any
// dies: asan
#include <algorithm>
#include <memory>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"

namespace tensorflow {
namespace text {

REGISTER_OP("NgramFingerprints")
    .Input("tokens: int64")
    .Attr("n: int >= 1")
    .Output("prints: uint64")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      c->set_output(0, c->Vector(c->UnknownDim()));
      return absl::OkStatus();
    });

inline uint64_t Mix(uint64_t a, uint64_t b) { return (a ^ (a >> 29)) * 0xBF58476D1CE4E5B9ull + b * 0x9E3779B97F4A7C15ull; }

template <typename Token>
class RollingPrints {
 public:
  explicit RollingPrints(int n) : n_(n), ring_(new uint64_t[n]) { std::fill_n(ring_.get(), n, uint64_t{0}); }

  void Prepare(const Token* tokens) {
    for (int k = 0; k <= n_; ++k) {
      ring_[k] = static_cast<uint64_t>(tokens[k % n_]);  // expect: op-buffer-overrun
    }
  }

  uint64_t Print() const {
    uint64_t print = 0;
    for (int k = 0; k < n_; ++k) print = Mix(print, ring_[k]);
    return print;
  }

 private:
  const int n_;
  std::unique_ptr<uint64_t[]> ring_;
};

class NgramFingerprintsOp : public OpKernel {
 public:
  explicit NgramFingerprintsOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("n", &n_));
    OP_REQUIRES(ctx, n_ >= 1 && n_ <= 64, errors::InvalidArgument("n must be in [1, 64], got ", n_));
  }

  void Compute(OpKernelContext* ctx) override {
    const Tensor& tokens = ctx->input(0);
    OP_REQUIRES(ctx, TensorShapeUtils::IsVector(tokens.shape()), errors::InvalidArgument("tokens must be a vector"));
    const int64_t grams = std::max<int64_t>(0, tokens.NumElements() - n_ + 1);
    Tensor* prints = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, TensorShape({grams}), &prints));
    const int64_t* data = tokens.vec<int64_t>().data();
    auto out = prints->vec<uint64_t>();
    RollingPrints<int64_t> rolling(n_);
    for (int64_t g = 0; g < grams; ++g) {
      rolling.Prepare(data + g);
      out(g) = rolling.Print();
    }
  }

 private:
  int n_ = 1;
};

REGISTER_KERNEL_BUILDER(Name("NgramFingerprints").Device(DEVICE_CPU), NgramFingerprintsOp);

}  // namespace text
}  // namespace tensorflow
