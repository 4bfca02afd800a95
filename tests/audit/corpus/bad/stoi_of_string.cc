// std::stol throws for text that is not a number, and nobody catches it.
// call: ToInteger {"text": {"value": "seven"}} => error
// graph: yes
// dies: SIGABRT
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
      number->flat<int64_t>()(i) = std::stoll(digits);  // expect: op-exception
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("ToInteger").Device(DEVICE_CPU), ToIntegerOp);
