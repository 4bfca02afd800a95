// A forward pass of CTC whose labels are verified with CHECK.
// call: CtcAlignmentLoss {"log_probs": {"fill": -1.0, "shape": [3, 1, 4]}, "labels": {"value": [[9]], "dtype": "int32"}} => error
// dies: SIGABRT
#include <cmath>
#include <limits>
#include <vector>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"

namespace tensorflow {
namespace ctc {

constexpr float kLogZero = -std::numeric_limits<float>::infinity();

inline float LogAdd(float a, float b) {
  if (a == kLogZero) return b;
  if (b == kLogZero) return a;
  return a > b ? a + std::log1p(std::exp(b - a)) : b + std::log1p(std::exp(a - b));
}

class Lattice {
 public:
  Lattice(const std::vector<int>& labels, int blank) : blank_(blank) {
    symbols_.reserve(2 * labels.size() + 1);
    symbols_.push_back(blank);
    for (const int label : labels) {
      symbols_.push_back(label);
      symbols_.push_back(blank);
    }
  }

  float Forward(TTypes<float, 3>::ConstTensor log_probs, int64_t b) const {
    const size_t states = symbols_.size();
    std::vector<float> alpha(states, kLogZero), next(states);
    alpha[0] = 0.0f;
    for (int64_t t = 0; t < log_probs.dimension(0); ++t) {
      for (size_t s = 0; s < states; ++s) {
        float sum = alpha[s];
        if (s > 0) sum = LogAdd(sum, alpha[s - 1]);
        if (s > 1 && symbols_[s] != blank_ && symbols_[s] != symbols_[s - 2]) sum = LogAdd(sum, alpha[s - 2]);
        next[s] = sum + log_probs(t, b, symbols_[s]);
      }
      alpha.swap(next);
    }
    return states > 1 ? LogAdd(alpha[states - 1], alpha[states - 2]) : alpha[0];
  }

 private:
  const int blank_;
  std::vector<int> symbols_;
};

}  // namespace ctc

REGISTER_OP("CtcAlignmentLoss")
    .Input("log_probs: float")
    .Input("labels: int32")
    .Output("loss: float")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      c->set_output(0, c->Vector(c->Dim(c->input(1), 0)));
      return absl::OkStatus();
    });

class CtcAlignmentLossOp : public OpKernel {
 public:
  explicit CtcAlignmentLossOp(OpKernelConstruction* ctx) : OpKernel(ctx) {}

  void Compute(OpKernelContext* ctx) override {
    const Tensor* probs;
    const Tensor* labels;
    OP_REQUIRES_OK(ctx, ctx->input("log_probs", &probs));
    OP_REQUIRES_OK(ctx, ctx->input("labels", &labels));
    OP_REQUIRES(ctx, probs->dims() == 3, errors::InvalidArgument("log_probs must be [time, batch, classes]"));
    OP_REQUIRES(ctx, labels->dims() == 2, errors::InvalidArgument("labels must be [batch, length]"));
    OP_REQUIRES(ctx, probs->dim_size(1) == labels->dim_size(0), errors::InvalidArgument("batch sizes differ"));
    const int classes = static_cast<int>(probs->dim_size(2));
    OP_REQUIRES(ctx, classes > 0, errors::InvalidArgument("there must be a blank"));
    Tensor* loss;
    OP_REQUIRES_OK(ctx, ctx->allocate_output("loss", TensorShape({labels->dim_size(0)}), &loss));
    const auto log_probs = probs->tensor<float, 3>();
    const auto target = labels->matrix<int32>();
    auto out = loss->vec<float>();
    for (int64_t b = 0; b < target.dimension(0); ++b) {
      std::vector<int> row;
      for (int64_t l = 0; l < target.dimension(1); ++l) {
        const int label = target(b, l);
        if (label == -1) break;
        CHECK_GE(label, 0) << "labels must not be negative";  // or: op-check-on-input
        CHECK_LT(label, classes - 1) << "the last class is the blank";  // expect: op-check-on-input
        row.push_back(label);
      }
      out(b) = -ctc::Lattice(row, classes - 1).Forward(log_probs, b);
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("CtcAlignmentLoss").Device(DEVICE_CPU), CtcAlignmentLossOp);

}  // namespace tensorflow
