// twin: op-output-unset
// call: MaxWithPlace {"x": [1.0, 5.0]} => [5.0, 1]
// call: MaxWithPlace {"x": [1.0, 5.0], "want_place": false} => [5.0, -1]
// call: MaxWithPlace {"x": {"zeros": [0]}} => error
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

REGISTER_OP("MaxWithPlace")
    .Input("x: float")
    .Attr("want_place: bool = true")
    .Output("largest: float")
    .Output("place: int64")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      c->set_output(0, c->Scalar());
      c->set_output(1, c->Scalar());
      return OkStatus();
    });

class MaxWithPlaceOp : public OpKernel {
 public:
  explicit MaxWithPlaceOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("want_place", &want_place_));
  }

  void Compute(OpKernelContext* context) override {
    const auto x = context->input(0).flat<float>();
    OP_REQUIRES(context, x.size() > 0, errors::InvalidArgument("x must not be empty"));
    int64_t place = 0;
    for (int64_t i = 1; i < x.size(); ++i) {
      if (x(i) > x(place)) place = i;
    }
    Tensor* largest = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &largest));
    largest->scalar<float>()() = x(place);
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(1, TensorShape({}), &output));
    output->scalar<int64_t>()() = want_place_ ? place : -1;
  }

 private:
  bool want_place_;
};

REGISTER_KERNEL_BUILDER(Name("MaxWithPlace").Device(DEVICE_CPU), MaxWithPlaceOp);

}  // namespace tensorflow
