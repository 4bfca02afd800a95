// A vector is made as long as the tensor says.
// call: RangeSum {"count": {"value": -1, "dtype": "int64"}} => error
// graph: yes
// dies: SIGABRT
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
    std::vector<int64_t> numbers(count);  // expect: op-allocation-unchecked
    std::iota(numbers.begin(), numbers.end(), 0);
    Tensor* sum = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &sum));
    sum->scalar<int64_t>()() = std::accumulate(numbers.begin(), numbers.end(), int64_t{0});
  }
};

REGISTER_KERNEL_BUILDER(Name("RangeSum").Device(DEVICE_CPU), RangeSumOp);
