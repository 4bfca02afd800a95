// A sum over an implicit tree: each node has two children, and the child's number, which the data give, decides the depth.
// call: TreeSum {"left": {"arange": 1000001, "dtype": "int32"}, "right": {"fill": -1, "shape": [1000001], "dtype": "int32"}, "values": {"fill": 1.0, "shape": [1000001], "dtype": "float32"}} => any
// dies: SIGSEGV
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {
namespace {

struct Tree {
  TTypes<int32>::ConstFlat left;
  TTypes<int32>::ConstFlat right;
  TTypes<float>::ConstFlat values;

  double SumFrom(int64_t node) const {  // expect: op-recursion
    if (node < 0 || node >= values.size()) return 0.0;
    const double below = SumFrom(left(node) + int64_t{1}) + SumFrom(right(node));
    return below + values(node);
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
    sum->scalar<double>()() = tree.SumFrom(0);
  }
};

REGISTER_KERNEL_BUILDER(Name("TreeSum").Device(DEVICE_CPU), TreeSumOp);

}  // namespace
}  // namespace tensorflow
