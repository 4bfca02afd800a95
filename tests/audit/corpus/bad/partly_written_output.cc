// Elements that are not above the limit are never written.
// call: KeepAbove {"x": [1.0, 5.0], "limit": 3.0} => [0.0, 5.0]
// build: asan
// wrong: the rest is what was in the memory before
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

using namespace tensorflow;

REGISTER_OP("KeepAbove").Input("x: float").Attr("limit: float").Output("y: float").SetShapeFn(shape_inference::UnchangedShape);

class KeepAboveOp : public OpKernel {
 public:
  explicit KeepAboveOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("limit", &limit_));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& x_tensor = context->input(0);
    Tensor* y_tensor = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, x_tensor.shape(), &y_tensor));  // expect: op-output-unset
    const auto x = x_tensor.flat<float>();
    auto y = y_tensor->flat<float>();
    for (int64_t i = 0; i < x.size(); ++i) {
      if (x(i) > limit_) y(i) = x(i);  // or: op-output-unset
    }
  }

 private:
  float limit_;
};

REGISTER_KERNEL_BUILDER(Name("KeepAbove").Device(DEVICE_CPU), KeepAboveOp);
