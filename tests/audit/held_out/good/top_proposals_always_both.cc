// Proposals with the best scores: both outputs are allocated before the early return.
// call: TopProposals {"scores": [0.1, 0.2], "boxes": {"fill": 0.0, "shape": [2, 4]}, "threshold": 0.9} => [[], []]
// call: TopProposals {"scores": [0.1, 0.9], "boxes": [[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 2.0, 2.0]], "threshold": 0.5} => [[1], [[0.0, 0.0, 2.0, 2.0]]]
// call: TopProposals {"scores": [0.1], "boxes": {"fill": 0.0, "shape": [2, 4]}} => error
// twin: op-output-unset
#include <algorithm>
#include <vector>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"

namespace tensorflow {

REGISTER_OP("TopProposals")
    .Input("scores: float")
    .Input("boxes: float")
    .Attr("threshold: float = 0.5")
    .Output("kept: int32")
    .Output("kept_boxes: float")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      c->set_output(0, c->Vector(c->UnknownDim()));
      c->set_output(1, c->Matrix(c->UnknownDim(), 4));
      return absl::OkStatus();
    });

class TopProposalsOp : public OpKernel {
 public:
  explicit TopProposalsOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("threshold", &threshold_));
  }

  void Compute(OpKernelContext* ctx) override {
    const Tensor& scores_in = ctx->input(0);
    const Tensor& boxes_in = ctx->input(1);
    OP_REQUIRES(ctx, boxes_in.dims() == 2 && boxes_in.dim_size(1) == 4, errors::InvalidArgument("boxes must be [N, 4]"));
    OP_REQUIRES(ctx, scores_in.dims() == 1 && scores_in.dim_size(0) == boxes_in.dim_size(0),
                errors::InvalidArgument("there must be a score for each box"));
    const auto scores = scores_in.vec<float>();
    const auto boxes = boxes_in.matrix<float>();
    std::vector<int32> kept;
    for (int64_t i = 0; i < scores.size(); ++i) {
      if (scores(i) >= threshold_) kept.push_back(static_cast<int32>(i));
    }
    const int64_t count = static_cast<int64_t>(kept.size());
    Tensor* kept_out = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, TensorShape({count}), &kept_out));
    Tensor* boxes_out = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(1, TensorShape({count, 4}), &boxes_out));
    if (kept.empty()) {
      VLOG(1) << "no proposal reaches " << threshold_;
      return;
    }
    std::stable_sort(kept.begin(), kept.end(), [&scores](int32 a, int32 b) { return scores(a) > scores(b); });
    auto to = boxes_out->matrix<float>();
    auto ids = kept_out->vec<int32>();
    for (int64_t i = 0; i < count; ++i) {
      ids(i) = kept[i];
      for (int k = 0; k < 4; ++k) to(i, k) = boxes(kept[i], k);
    }
  }

 private:
  float threshold_ = 0.5f;
};

REGISTER_KERNEL_BUILDER(Name("TopProposals").Device(DEVICE_CPU), TopProposalsOp);

}  // namespace tensorflow
