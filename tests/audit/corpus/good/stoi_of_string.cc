// twin: op-exception
// call: ToInteger {"text": ["7", "-12"]} => [7, -12]
// call: ToInteger {"text": "seven"} => error
// call: ToInteger {"text": "99999999999999999999999"} => error
// call: ToInteger {"text": ""} => error
// call: ToInteger {"text": {"zeros": [0], "dtype": "string"}} => []
#include <string>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

using namespace tensorflow;

REGISTER_OP("ToInteger").Input("text: string").Output("number: int64").SetShapeFn(shape_inference::UnchangedShape);

class ToIntegerOp : public OpKernel {
 public:
  explicit ToIntegerOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& text = context->input(0);
    Tensor* number = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, text.shape(), &number));
    for (int64_t i = 0; i < text.NumElements(); ++i) {
      const std::string digits = text.flat<tstring>()(i);
      try {
        number->flat<int64_t>()(i) = std::stoll(digits);
      } catch (const std::exception& error) {
        OP_REQUIRES(context, false, errors::InvalidArgument("not a number: ", digits));
      }
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("ToInteger").Device(DEVICE_CPU), ToIntegerOp);
