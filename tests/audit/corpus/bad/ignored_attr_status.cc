// GetAttr asks for an attribute by a wrong name, and nobody looks at what it answers: the member is never set.
// call: PadRight {"x": [1.0], "padding": 2} => [1.0, 0.0, 0.0]
// wrong: the padding is not what the caller gave
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

using namespace tensorflow;

REGISTER_OP("PadRight").Input("x: float").Attr("padding: int >= 0").Output("y: float").SetShapeFn([](shape_inference::InferenceContext* c) {
  c->set_output(0, c->Vector(c->UnknownDim()));
  return OkStatus();
});

class PadRightOp : public OpKernel {
 public:
  explicit PadRightOp(OpKernelConstruction* context) : OpKernel(context) {
    context->GetAttr("pading", &padding_);  // expect: op-status-ignored
  }

  void Compute(OpKernelContext* context) override {
    const auto x = context->input(0).flat<float>();
    OP_REQUIRES(context, padding_ >= 0 && padding_ <= 1000, errors::InvalidArgument("padding must be in [0, 1000]"));
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({x.size() + padding_}), &y));
    auto out = y->flat<float>();
    out.setZero();
    for (int64_t i = 0; i < x.size(); ++i) out(i) = x(i);
  }

 private:
  int64_t padding_ = 0;
};

REGISTER_KERNEL_BUILDER(Name("PadRight").Device(DEVICE_CPU), PadRightOp);
