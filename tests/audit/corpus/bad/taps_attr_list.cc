// Offsets in an attribute's list are added to the position.
// call: TapFilter {"x": [1.0, 2.0], "taps": [0, 400000000]} => error
// dies: SIGSEGV
#include <vector>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace filters {

using namespace ::tensorflow;

REGISTER_OP("TapFilter")
    .Input("x: float")
    .Attr("taps: list(int) >= 1")
    .Output("y: float")
    .SetShapeFn(shape_inference::UnchangedShape);

class TapFilterOp : public OpKernel {
 public:
  explicit TapFilterOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("taps", &taps_));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& x_t = context->input(0);
    Tensor* y_t = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, x_t.shape(), &y_t));
    const auto x = x_t.flat<float>();
    auto y = y_t->flat<float>();
    for (int64_t i = 0; i < x.size(); ++i) {
      float sum = 0;
      for (const int64_t tap : taps_) {
        sum += x(i + tap);  // expect: op-attr-unchecked
      }
      y(i) = sum;
    }
  }

 private:
  std::vector<int64_t> taps_;
};

REGISTER_KERNEL_BUILDER(Name("TapFilter").Device(DEVICE_CPU), TapFilterOp);

}  // namespace filters
