// twin: op-element-unchecked
// call: ScaleByFirst {"x": [1.0, 2.0], "factors": [3.0, 9.0]} => [3.0, 6.0]
// call: ScaleByFirst {"x": [1.0, 2.0], "factors": 2.0} => [2.0, 4.0]
// call: ScaleByFirst {"x": [1.0, 2.0], "factors": {"zeros": [0]}} => error
// call: ScaleByFirst {"x": {"zeros": [0]}, "factors": [1.0]} => []
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

using namespace tensorflow;

REGISTER_OP("ScaleByFirst")
    .Input("x: T")
    .Input("factors: T")
    .Output("y: T")
    .Attr("T: {half, float, double}")
    .SetShapeFn(shape_inference::UnchangedShape);

template <typename T>
class ScaleByFirstOp : public OpKernel {
 public:
  explicit ScaleByFirstOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& x = context->input(0);
    const auto factors = context->input(1).flat<T>();
    OP_REQUIRES(context, factors.size() > 0, errors::InvalidArgument("factors must not be empty"));
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, x.shape(), &y));
    const T factor = factors(0);
    y->flat<T>() = x.flat<T>() * factor;
  }
};

#define REGISTER(T) REGISTER_KERNEL_BUILDER(Name("ScaleByFirst").Device(DEVICE_CPU).TypeConstraint<T>("T"), ScaleByFirstOp<T>)
REGISTER(Eigen::half);
REGISTER(float);
REGISTER(double);
