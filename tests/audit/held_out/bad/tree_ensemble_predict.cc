// Predicts with a tree whose nodes are given as tensors; the walk from node to child is recursive and children may point back.
// call: TreeEnsemblePredict {"features": {"value": [[0.5, 1.5]]}, "split_feature": [0, -1, -1], "threshold": [1.0, 0.0, 0.0], "left": [0, 0, 0], "right": [2, 0, 0], "leaf_value": [0.0, 3.0, 4.0]} => error
// dies: SIGSEGV
#include <cstdint>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"

namespace tensorflow {
namespace {

REGISTER_OP("TreeEnsemblePredict")
    .Input("features: float")
    .Input("split_feature: int32")
    .Input("threshold: float")
    .Input("left: int32")
    .Input("right: int32")
    .Input("leaf_value: float")
    .Output("scores: float")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      c->set_output(0, c->Vector(c->Dim(c->input(0), 0)));
      return absl::OkStatus();
    });

struct TreeView {
  TTypes<int32>::ConstVec split_feature;
  TTypes<float>::ConstVec threshold;
  TTypes<int32>::ConstVec left;
  TTypes<int32>::ConstVec right;
  TTypes<float>::ConstVec leaf_value;

  int64_t nodes() const { return split_feature.size(); }
};

// Where all children lie within the table and every feature within the row.
absl::Status ValidateTree(const TreeView& tree, int64_t num_features) {
  const int64_t n = tree.nodes();
  if (n == 0) return errors::InvalidArgument("the tree has no nodes");
  if (tree.threshold.size() != n || tree.left.size() != n || tree.right.size() != n || tree.leaf_value.size() != n) {
    return errors::InvalidArgument("all node tables must have ", n, " entries");
  }
  for (int64_t i = 0; i < n; ++i) {
    if (tree.split_feature(i) >= num_features) return errors::InvalidArgument("node ", i, " splits on no feature");
    if (tree.left(i) < 0 || tree.left(i) >= n) return errors::InvalidArgument("left child of ", i);
    if (tree.right(i) < 0 || tree.right(i) >= n) return errors::InvalidArgument("right child of ", i);
  }
  return absl::OkStatus();
}

class TreeWalker {
 public:
  TreeWalker(const TreeView& tree, TTypes<float>::ConstMatrix features) : tree_(tree), features_(features) {}

  float Score(int64_t row) const { return Descend(row, 0) + 0.5f; }

 private:
  float Descend(int64_t row, int32 node) const {  // expect: op-recursion
    const int32 feature = tree_.split_feature(node);
    if (feature < 0) return tree_.leaf_value(node);
    const float value = features_(row, feature);
    const bool goes_left = value < tree_.threshold(node);
    const float below = goes_left ? Descend(row, tree_.left(node)) : Descend(row, tree_.right(node));
    return below * 0.99f;
  }

  const TreeView& tree_;
  TTypes<float>::ConstMatrix features_;
};

class TreeEnsemblePredictOp : public OpKernel {
 public:
  explicit TreeEnsemblePredictOp(OpKernelConstruction* ctx) : OpKernel(ctx) {}

  void Compute(OpKernelContext* ctx) override {
    const Tensor& features = ctx->input(0);
    OP_REQUIRES(ctx, TensorShapeUtils::IsMatrix(features.shape()),
                errors::InvalidArgument("features must be a matrix, got ", features.shape().DebugString()));
    for (int i = 1; i < ctx->num_inputs(); ++i) {
      OP_REQUIRES(ctx, TensorShapeUtils::IsVector(ctx->input(i).shape()),
                  errors::InvalidArgument("input ", i, " must be a vector"));
    }
    const TreeView tree{ctx->input(1).vec<int32>(), ctx->input(2).vec<float>(), ctx->input(3).vec<int32>(),
                        ctx->input(4).vec<int32>(), ctx->input(5).vec<float>()};
    OP_REQUIRES_OK(ctx, ValidateTree(tree, features.dim_size(1)));

    Tensor* scores = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, TensorShape({features.dim_size(0)}), &scores));
    auto out = scores->vec<float>();
    const TreeWalker walker(tree, features.matrix<float>());
    for (int64_t row = 0; row < features.dim_size(0); ++row) {
      out(row) = walker.Score(row);
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("TreeEnsemblePredict").Device(DEVICE_CPU), TreeEnsemblePredictOp);

}  // namespace
}  // namespace tensorflow
