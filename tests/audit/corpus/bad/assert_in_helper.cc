// A helper asserts that the text is a number.
// call: ParseDigits {"text": ["12", "1x"]} => error
// dies: SIGABRT
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
      out(i) = digits::Parse(in(i).data(), in(i).size());
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("ParseDigits").Device(DEVICE_CPU), ParseDigitsOp);

}  // namespace tensorflow
