// twin: op-check-on-input
// call: ParseDigits {"text": ["12", ""]} => [12, 0]
// call: ParseDigits {"text": ["12", "1x"]} => error
// call: ParseDigits {"text": {"zeros": [0], "dtype": "string"}} => []
#undef NDEBUG
#include <cassert>

#include "assert_in_helper.h"

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

REGISTER_OP("ParseDigits").Input("text: string").Output("value: uint64").SetShapeFn(shape_inference::UnchangedShape);

class ParseDigitsOp : public OpKernel {
 public:
  explicit ParseDigitsOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& text = context->input(0);
    Tensor* value = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, text.shape(), &value));
    const auto in = text.flat<tstring>();
    auto out = value->flat<uint64>();
    for (int64_t i = 0; i < in.size(); ++i) {
      uint64_t number = 0;
      OP_REQUIRES(context, digits::Parse(in(i).data(), in(i).size(), &number),
                  errors::InvalidArgument("not a number: ", in(i)));
      out(i) = number;
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("ParseDigits").Device(DEVICE_CPU), ParseDigitsOp);

}  // namespace tensorflow
