// sprintf of numbers, whose longest form fits, and of strings that are only ever literals.
// twin: op-string-overflow
// call: Describe {"x": [1, -2147483648]} => ["low: 1 (0)", "low: -2147483648 (1)"]
// call: Describe {"x": {"zeros": [0], "dtype": "int32"}} => []
// call: Describe {"x": 2147483647} => "high: 2147483647 (0)"
#include <cstdio>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

using namespace tensorflow;

REGISTER_OP("Describe").Input("x: int32").Output("text: string").SetShapeFn(shape_inference::UnchangedShape);

static const char* KindOf(int32 value) { return value > 100 ? "high" : "low"; }

class DescribeOp : public OpKernel {
 public:
  explicit DescribeOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& x = context->input(0);
    Tensor* text = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, x.shape(), &text));
    const auto in = x.flat<int32>();
    auto out = text->flat<tstring>();
    for (int64_t i = 0; i < in.size(); ++i) {
      char buffer[64];
      const int length = sprintf(buffer, "%s: %d (%lld)", KindOf(in(i)), in(i), static_cast<long long>(i));
      out(i) = tstring(buffer, length);
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("Describe").Device(DEVICE_CPU), DescribeOp);
