// twin: op-allocation-unchecked, op-element-unchecked
// call: RangeSum {"count": {"value": 4, "dtype": "int64"}} => 6
// call: RangeSum {"count": {"value": [-1], "dtype": "int64"}} => error
// call: RangeSum {"count": {"value": 4611686018427387904, "dtype": "int64"}} => error
// call: RangeSum {"count": {"zeros": [0], "dtype": "int64"}} => error
#include <numeric>
#include <vector>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

using namespace tensorflow;

REGISTER_OP("RangeSum").Input("count: int64").Output("sum: int64").SetShapeFn(shape_inference::ScalarShape);

class RangeSumOp : public OpKernel {
 public:
  explicit RangeSumOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& count_tensor = context->input(0);
    OP_REQUIRES(context, count_tensor.NumElements() == 1, errors::InvalidArgument("count must have one element"));
    const int64_t count = count_tensor.flat<int64_t>()(0);
    if (!(0 <= count && count < 100000)) {
      context->CtxFailure(errors::InvalidArgument("count must be in [0, 100000)"));
      return;
    }
    std::vector<int64_t> numbers(count);
    std::iota(numbers.begin(), numbers.end(), 0);
    Tensor* sum = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &sum));
    sum->scalar<int64_t>()() = std::accumulate(numbers.begin(), numbers.end(), int64_t{0});
  }
};

REGISTER_KERNEL_BUILDER(Name("RangeSum").Device(DEVICE_CPU), RangeSumOp);
