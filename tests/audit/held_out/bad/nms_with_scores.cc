// Greedy non-maximum suppression: candidates are counted by the boxes, and the scores read for each.
// call: NmsWithScores {"boxes": {"fill": 0.5, "shape": [64, 4]}, "scores": [0.5], "max_output": 10} => error
// dies: asan
#include <algorithm>
#include <deque>
#include <queue>
#include <vector>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"

namespace tensorflow {
namespace {

REGISTER_OP("NmsWithScores")
    .Input("boxes: float")
    .Input("scores: float")
    .Input("max_output: int32")
    .Attr("iou_threshold: float = 0.5")
    .Output("selected: int32")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      c->set_output(0, c->Vector(c->UnknownDim()));
      return absl::OkStatus();
    });

using Boxes = TTypes<float, 2>::ConstTensor;

float Area(const Boxes& boxes, int i) {
  const float h = std::max(boxes(i, 2) - boxes(i, 0), 0.0f);
  const float w = std::max(boxes(i, 3) - boxes(i, 1), 0.0f);
  return h * w;
}

float IntersectionOverUnion(const Boxes& boxes, int i, int j) {
  const float top = std::max(boxes(i, 0), boxes(j, 0)), left = std::max(boxes(i, 1), boxes(j, 1));
  const float bottom = std::min(boxes(i, 2), boxes(j, 2)), right = std::min(boxes(i, 3), boxes(j, 3));
  const float common = std::max(bottom - top, 0.0f) * std::max(right - left, 0.0f);
  const float together = Area(boxes, i) + Area(boxes, j) - common;
  return together > 0.0f ? common / together : 0.0f;
}

struct Candidate {
  int box;
  float score;
};

void DoNms(OpKernelContext* context, const Tensor& boxes_tensor, const Tensor& scores_tensor, int max_output,
           float threshold) {
  const Boxes boxes = boxes_tensor.tensor<float, 2>();
  const auto scores = scores_tensor.flat<float>();
  const int num_boxes = static_cast<int>(boxes_tensor.dim_size(0));
  const auto lower = [](const Candidate& a, const Candidate& b) { return a.score < b.score; };
  std::priority_queue<Candidate, std::deque<Candidate>, decltype(lower)> queue(lower);
  for (int i = 0; i < num_boxes; ++i) {
    queue.push(Candidate{i, scores(i)});  // expect: op-sizes-unrelated
  }
  std::vector<int32> selected;
  while (!queue.empty() && static_cast<int>(selected.size()) < max_output) {
    const Candidate next = queue.top();
    queue.pop();
    const bool keep = std::none_of(selected.begin(), selected.end(), [&](int32 other) {
      return IntersectionOverUnion(boxes, next.box, other) > threshold;
    });
    if (keep) selected.push_back(next.box);
  }
  Tensor* output = nullptr;
  OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({static_cast<int64_t>(selected.size())}), &output));
  auto out = output->vec<int32>();
  std::copy_n(selected.begin(), selected.size(), out.data());
}

class NmsWithScoresOp : public OpKernel {
 public:
  explicit NmsWithScoresOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("iou_threshold", &threshold_));
    OP_REQUIRES(context, threshold_ >= 0 && threshold_ <= 1, errors::InvalidArgument("iou_threshold must be in [0, 1]"));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& boxes = context->input(0);
    const Tensor& scores = context->input(1);
    const Tensor& max_output = context->input(2);
    OP_REQUIRES(context, boxes.dims() == 2 && boxes.dim_size(1) == 4, errors::InvalidArgument("boxes must be [N, 4]"));
    OP_REQUIRES(context, boxes.dim_size(0) < 1 << 24, errors::InvalidArgument("too many boxes"));
    OP_REQUIRES(context, scores.dims() == 1, errors::InvalidArgument("scores must be a vector"));
    OP_REQUIRES(context, TensorShapeUtils::IsScalar(max_output.shape()), errors::InvalidArgument("max_output: a scalar"));
    DoNms(context, boxes, scores, max_output.scalar<int32>()(), threshold_);
  }

 private:
  float threshold_;
};

REGISTER_KERNEL_BUILDER(Name("NmsWithScores").Device(DEVICE_CPU), NmsWithScoresOp);

}  // namespace
}  // namespace tensorflow
