// A beam's history whose destructor takes the chain apart in a loop.
// call: BeamHistory {"scores": {"fill": 1.0, "shape": [4000000, 1]}} => any
// call: BeamHistory {"scores": [[0.0, 1.0], [2.0, 1.0]]} => [1, 0]
// call: BeamHistory {"scores": {"zeros": [0, 3]}} => []
// call: BeamHistory {"scores": {"zeros": [3, 0]}} => error
// twin: op-recursive-destructor
#include <memory>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"

namespace tensorflow {
namespace beam {

struct Hypothesis {
  int32 token = -1;
  float total = 0.0f;
  std::string text;
  std::unique_ptr<Hypothesis> previous;

  ~Hypothesis() {
    while (previous) {
      std::unique_ptr<Hypothesis> older = std::move(previous->previous);
      previous = std::move(older);
    }
  }
};

using HypothesisPtr = std::unique_ptr<Hypothesis>;

class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual void Step(TTypes<float>::ConstMatrix scores, int64_t t) = 0;
  virtual std::vector<int32> Best() const = 0;
};

class GreedyDecoder : public Decoder {
 public:
  void Step(TTypes<float>::ConstMatrix scores, int64_t t) override {
    int32 best = 0;
    for (int64_t c = 1; c < scores.dimension(1); ++c) {
      if (scores(t, c) > scores(t, best)) best = static_cast<int32>(c);
    }
    auto next = std::make_unique<Hypothesis>();
    next->token = best;
    next->total = (last_ ? last_->total : 0.0f) + scores(t, best);
    next->previous = std::move(last_);
    last_ = std::move(next);
  }

  std::vector<int32> Best() const override {
    std::vector<int32> tokens;
    for (const Hypothesis* h = last_.get(); h != nullptr; h = h->previous.get()) tokens.push_back(h->token);
    return {tokens.rbegin(), tokens.rend()};
  }

 private:
  HypothesisPtr last_;
};

}  // namespace beam

REGISTER_OP("BeamHistory")
    .Input("scores: float")
    .Output("tokens: int32")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      shape_inference::ShapeHandle scores;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &scores));
      c->set_output(0, c->Vector(c->Dim(scores, 0)));
      return absl::OkStatus();
    });

class BeamHistoryOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    const Tensor& scores_tensor = ctx->input(0);
    OP_REQUIRES(ctx, scores_tensor.dims() == 2, errors::InvalidArgument("scores must be [time, classes]"));
    OP_REQUIRES(ctx, scores_tensor.dim_size(1) > 0, errors::InvalidArgument("there must be classes"));
    const auto scores = scores_tensor.matrix<float>();
    beam::GreedyDecoder decoder;
    for (int64_t t = 0; t < scores.dimension(0); ++t) decoder.Step(scores, t);

    const std::vector<int32> best = decoder.Best();
    Tensor* tokens = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, TensorShape({static_cast<int64_t>(best.size())}), &tokens));
    auto out = tokens->flat<int32>();
    std::copy(best.begin(), best.end(), out.data());
  }
};

REGISTER_KERNEL_BUILDER(Name("BeamHistory").Device(DEVICE_CPU), BeamHistoryOp);

}  // namespace tensorflow
