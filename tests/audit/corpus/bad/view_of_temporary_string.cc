// A string_view of a string that ends with the statement.
// call: TrimDots {"text": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa..."} => any
// dies: asan
#include <string>

#include "absl/strings/string_view.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

static std::string WithoutDots(const tstring& text) {
  std::string result(text.data(), text.size());
  while (!result.empty() && result.back() == '.') result.pop_back();
  return result;
}

REGISTER_OP("TrimDots").Input("text: string").Output("trimmed: string").SetShapeFn(shape_inference::UnchangedShape);

class TrimDotsOp : public OpKernel {
 public:
  explicit TrimDotsOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& text = context->input(0);
    Tensor* trimmed = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, text.shape(), &trimmed));
    for (int64_t i = 0; i < text.NumElements(); ++i) {
      const absl::string_view view = WithoutDots(text.flat<tstring>()(i));  // expect: op-dangling-view
      trimmed->flat<tstring>()(i) = tstring(view.data(), view.size());  // or: op-dangling-view
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("TrimDots").Device(DEVICE_CPU), TrimDotsOp);

}  // namespace tensorflow
