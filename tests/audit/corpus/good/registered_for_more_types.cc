// The type is asked for before the tensor is read.
// twin: op-type-unchecked
// call: AbsMax {"x": [1.0, -2.0]} => 2.0
// call: AbsMax {"x": {"value": [1.0, -2.0], "dtype": "float64"}} => error
// call: AbsMax {"x": {"zeros": [0]}} => 0.0
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
    OP_REQUIRES(context, x.dtype() == DT_FLOAT, errors::Unimplemented("only float so far, not ", DataTypeString(x.dtype())));
    Tensor* largest = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &largest));
    const auto values = x.flat<float>();
    float found = 0;
    for (int64_t i = 0; i < values.size(); ++i) found = std::max(found, std::fabs(static_cast<float>(values(i))));
    largest->scalar<float>()() = found;
  }
};

REGISTER_KERNEL_BUILDER(Name("AbsMax").Device(DEVICE_CPU), AbsMaxOp);
