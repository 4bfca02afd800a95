// Raw pointers into three tensors, and one length for all of them.
// call: MaskedFill {"x": {"fill": 1.0, "shape": [100], "dtype": "float32"}, "mask": {"value": [true, false]}, "value": 0.0} => error
// dies: asan
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

REGISTER_OP("MaskedFill")
    .Input("x: T")
    .Input("mask: bool")
    .Input("value: T")
    .Output("y: T")
    .Attr("T: {float, int32}")
    .SetShapeFn(shape_inference::UnchangedShape);

template <typename T>
void FillWhere(const T* from, const bool* mask, T value, int64_t length, T* to) {
  for (int64_t i = 0; i < length; ++i) {
    to[i] = mask[i] ? value : from[i];  // expect: op-sizes-unrelated
  }
}

template <typename T>
class MaskedFillOp : public OpKernel {
 public:
  explicit MaskedFillOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& x = context->input(0);
    const Tensor& mask = context->input(1);
    const Tensor& value = context->input(2);
    OP_REQUIRES(context, TensorShapeUtils::IsScalar(value.shape()),
                errors::InvalidArgument("value must be a scalar: ", value.shape().DebugString()));
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, x.shape(), &y));
    FillWhere<T>(x.flat<T>().data(), mask.flat<bool>().data(), value.scalar<T>()(), x.NumElements(),
                 y->flat<T>().data());
  }
};

REGISTER_KERNEL_BUILDER(Name("MaskedFill").Device(DEVICE_CPU).TypeConstraint<float>("T"), MaskedFillOp<float>);
REGISTER_KERNEL_BUILDER(Name("MaskedFill").Device(DEVICE_CPU).TypeConstraint<int32>("T"), MaskedFillOp<int32>);

}  // namespace tensorflow
