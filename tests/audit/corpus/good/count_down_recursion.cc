// twin: op-recursion, op-rank-unchecked
// The same recursion, with a limit on what the input may ask for.
// call: CountDown {"start": {"value": 11, "dtype": "int64"}} => 46
// call: CountDown {"start": {"value": -5, "dtype": "int64"}} => 0
// call: CountDown {"start": {"value": 1000, "dtype": "int64"}} => 4500
// call: CountDown {"start": {"value": 100000000, "dtype": "int64"}} => error
// call: CountDown {"start": {"value": [1], "dtype": "int64"}} => error
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {
namespace {

// Collatz with a twist: the sum of the digits on the way down.
int64_t SumDown(int64_t n, int64_t modulus) {
  if (n <= 0) return 0;
  const int64_t digit = n % modulus;
  return digit + SumDown(n - 1, modulus);
}

}  // namespace

REGISTER_OP("CountDown").Input("start: int64").Output("sum: int64").SetShapeFn(shape_inference::ScalarShape);

class CountDownOp : public OpKernel {
 public:
  explicit CountDownOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& start = context->input(0);
    OP_REQUIRES(context, TensorShapeUtils::IsScalar(start.shape()), errors::InvalidArgument("start must be a scalar"));
    OP_REQUIRES(context, start.scalar<int64_t>()() <= 1000, errors::InvalidArgument("start must be at most 1000"));
    Tensor* sum = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &sum));
    sum->scalar<int64_t>()() = SumDown(start.scalar<int64_t>()(), 10);
  }
};

REGISTER_KERNEL_BUILDER(Name("CountDown").Device(DEVICE_CPU), CountDownOp);

}  // namespace tensorflow
