// The kernel takes any of three types by its attribute, but reads float whatever it is.
// call: AbsMax {"x": {"value": [1.0, -2.0], "dtype": "float64"}} => any
// dies: SIGABRT
#include <cmath>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

using namespace tensorflow;

REGISTER_OP("AbsMax")
    .Input("x: T")
    .Output("largest: float")
    .Attr("T: {half, float, double}")
    .SetShapeFn(shape_inference::ScalarShape);

class AbsMaxOp : public OpKernel {
 public:
  explicit AbsMaxOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& x = context->input(0);
    Tensor* largest = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &largest));
    const auto values = x.flat<float>();  // expect: op-type-unchecked
    float found = 0;
    for (int64_t i = 0; i < values.size(); ++i) found = std::max(found, std::fabs(static_cast<float>(values(i))));
    largest->scalar<float>()() = found;
  }
};

REGISTER_KERNEL_BUILDER(Name("AbsMax").Device(DEVICE_CPU), AbsMaxOp);
