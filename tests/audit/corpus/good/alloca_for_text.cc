// twin: op-stack-allocation, op-dangling-view
// call: UpperCase {"text": ["abc", ""]} => ["ABC", ""]
// call: UpperCase {"text": {"texts": [{"text": "a", "times": 9000000}]}} => any
// call: UpperCase {"text": {"zeros": [0], "dtype": "string"}} => []
#include <cctype>
#include <string>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

using namespace tensorflow;

REGISTER_OP("UpperCase").Input("text: string").Output("upper: string").SetShapeFn(shape_inference::UnchangedShape);

class UpperCaseOp : public OpKernel {
 public:
  explicit UpperCaseOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& text = context->input(0);
    Tensor* upper = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, text.shape(), &upper));
    const auto in = text.flat<tstring>();
    auto out = upper->flat<tstring>();
    for (int64_t i = 0; i < in.size(); ++i) {
      const size_t size = in(i).size();
      std::string copy(in(i).data(), size);
      for (size_t k = 0; k < size; ++k) copy[k] = static_cast<char>(std::toupper(static_cast<unsigned char>(copy[k])));
      out(i) = tstring(copy.data(), copy.size());
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("UpperCase").Device(DEVICE_CPU), UpperCaseOp);
