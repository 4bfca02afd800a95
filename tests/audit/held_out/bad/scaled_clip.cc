// Two bounds taken as scalars by scalar<T>(), whatever their shape.
// call: ScaledClip {"x": [1.0, 2.0], "low": [0.0, 1.0], "high": 2.0} => error
// dies: SIGABRT
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"

namespace tensorflow {

using CPUDevice = Eigen::ThreadPoolDevice;

REGISTER_OP("ScaledClip")
    .Attr("T: {float, double, int32, int64}")
    .Input("x: T")
    .Input("low: T")
    .Input("high: T")
    .Output("y: T")
    .SetShapeFn(shape_inference::UnchangedShape);

template <typename T>
struct Bounds {
  T low;
  T high;

  static Bounds From(OpKernelContext* ctx) {
    Bounds bounds;
    bounds.low = ctx->input(1).scalar<T>()();  // expect: op-rank-unchecked
    bounds.high = ctx->input(2).scalar<T>()();  // expect: op-rank-unchecked
    return bounds;
  }
};

template <typename Device, typename T>
class ScaledClipOp : public OpKernel {
 public:
  explicit ScaledClipOp(OpKernelConstruction* ctx) : OpKernel(ctx) {}

  void Compute(OpKernelContext* ctx) override {
    const Bounds<T> bounds = Bounds<T>::From(ctx);
    OP_REQUIRES(ctx, bounds.low <= bounds.high, errors::InvalidArgument("low must not be above high"));
    const Tensor& x = ctx->input(0);
    Tensor* y = nullptr;
    OP_REQUIRES_OK(ctx, ctx->forward_input_or_allocate_output({0}, 0, x.shape(), &y));
    y->flat<T>().device(ctx->eigen_device<Device>()) = x.flat<T>().cwiseMax(bounds.low).cwiseMin(bounds.high);
  }
};

#define REGISTER_CLIP(T) \
  REGISTER_KERNEL_BUILDER(Name("ScaledClip").Device(DEVICE_CPU).TypeConstraint<T>("T"), ScaledClipOp<CPUDevice, T>);
TF_CALL_float(REGISTER_CLIP);
TF_CALL_double(REGISTER_CLIP);
TF_CALL_int32(REGISTER_CLIP);
TF_CALL_int64(REGISTER_CLIP);
#undef REGISTER_CLIP

}  // namespace tensorflow
