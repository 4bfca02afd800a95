// Children come after their parents, so a loop from the end adds each to its parent; half of an interval is no deep
// recursion.
// twin: op-recursion
// call: TreeSum {"left": [1, -1, -1], "right": [2, -1, -1], "values": [1.0, 2.0, 4.0]} => 7.0
// call: TreeSum {"left": [0], "right": [-1], "values": [1.0]} => error
// call: TreeSum {"left": [9], "right": [-1], "values": [1.0]} => error
// call: TreeSum {"left": [1], "right": [-1], "values": {"zeros": [0]}} => error
// call: TreeSum {"left": {"zeros": [0], "dtype": "int32"}, "right": {"zeros": [0], "dtype": "int32"}, "values": {"zeros": [0]}} => 0.0
#include <vector>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {
namespace {

struct Tree {
  TTypes<int32>::ConstFlat left;
  TTypes<int32>::ConstFlat right;
  TTypes<float>::ConstFlat values;

  // The sum of [begin, end), by halves: the depth is the logarithm of the size.
  static double SumOf(const std::vector<double>& sums, size_t begin, size_t end) {
    if (begin >= end) return 0.0;
    if (end - begin == 1) return sums[begin];
    const size_t mid = begin + (end - begin) / 2;
    return SumOf(sums, begin, mid) + SumOf(sums, mid, end);
  }

  double Sum() const {
    std::vector<double> sums(values.size(), 0.0);
    std::vector<bool> reached(values.size(), false);
    if (values.size() > 0) reached[0] = true;
    for (int64_t node = 0; node < values.size(); ++node) {
      if (!reached[node]) continue;
      sums[node] = values(node);
      for (const int64_t child : {int64_t{left(node)}, int64_t{right(node)}}) {
        if (child > node && child < values.size()) reached[child] = true;
      }
    }
    return SumOf(sums, 0, sums.size());
  }

  bool IsOrdered() const {
    for (int64_t node = 0; node < values.size(); ++node) {
      for (const int64_t child : {int64_t{left(node)}, int64_t{right(node)}}) {
        if (child >= 0 && (child <= node || child >= values.size())) return false;
      }
    }
    return true;
  }
};

REGISTER_OP("TreeSum")
    .Input("left: int32")
    .Input("right: int32")
    .Input("values: float")
    .Output("sum: double")
    .SetShapeFn(shape_inference::ScalarShape);

class TreeSumOp : public OpKernel {
 public:
  explicit TreeSumOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const int64_t count = context->input(2).NumElements();
    OP_REQUIRES(context, context->input(0).NumElements() == count && context->input(1).NumElements() == count,
                errors::InvalidArgument("left, right and values must have as many elements as each other"));
    Tensor* sum = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &sum));
    const Tree tree{context->input(0).flat<int32>(), context->input(1).flat<int32>(), context->input(2).flat<float>()};
    OP_REQUIRES(context, tree.IsOrdered(), errors::InvalidArgument("children must come after their parents"));
    sum->scalar<double>()() = tree.Sum();
  }
};

REGISTER_KERNEL_BUILDER(Name("TreeSum").Device(DEVICE_CPU), TreeSumOp);

}  // namespace
}  // namespace tensorflow
