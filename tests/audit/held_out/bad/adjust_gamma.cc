// Gamma correction through a functor for any type of image; the images are taken for NHWC without a look.
// call: AdjustGammaNhwc {"images": {"fill": 0.5, "shape": [4, 4]}, "gamma": 2.0} => error
// dies: SIGABRT
#include <cmath>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"

namespace tensorflow {
namespace image {

using CPUDevice = Eigen::ThreadPoolDevice;

REGISTER_OP("AdjustGammaNhwc")
    .Input("images: T")
    .Input("gamma: float")
    .Output("adjusted: T")
    .Attr("T: {float, double}")
    .SetShapeFn(shape_inference::UnchangedShape);

template <typename Device, typename T>
struct AdjustGamma {
  using Images = typename TTypes<T, 4>::ConstTensor;
  using Adjusted = typename TTypes<T, 4>::Tensor;

  void operator()(const Device& d, Images images, float gamma, Adjusted adjusted) {
    adjusted.device(d) = images.abs().pow(static_cast<T>(gamma));
  }
};

// What all ops on images have in common.
template <typename Device, typename T>
class ImageOp : public OpKernel {
 public:
  explicit ImageOp(OpKernelConstruction* ctx) : OpKernel(ctx) {}

  void Compute(OpKernelContext* ctx) final {
    const Tensor& images = ctx->input(0);
    Tensor* adjusted = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, images.shape(), &adjusted));
    if (images.NumElements() == 0) return;
    Adjust(ctx, images, adjusted);
  }

 protected:
  virtual void Adjust(OpKernelContext* ctx, const Tensor& images, Tensor* adjusted) = 0;
};

template <typename Device, typename T>
class AdjustGammaNhwcOp : public ImageOp<Device, T> {
 public:
  using ImageOp<Device, T>::ImageOp;

 protected:
  void Adjust(OpKernelContext* ctx, const Tensor& images, Tensor* adjusted) override {
    const Tensor& gamma = ctx->input(1);
    OP_REQUIRES(ctx, TensorShapeUtils::IsScalar(gamma.shape()), errors::InvalidArgument("gamma must be a scalar"));
    AdjustGamma<Device, T>()(ctx->eigen_device<Device>(), images.tensor<T, 4>(),  // expect: op-rank-unchecked
                             gamma.scalar<float>()(), adjusted->tensor<T, 4>());
  }
};

#define REGISTER_GAMMA(T)                                                             \
  REGISTER_KERNEL_BUILDER(                                                            \
      Name("AdjustGammaNhwc").Device(DEVICE_CPU).TypeConstraint<T>("T"), AdjustGammaNhwcOp<CPUDevice, T>)
REGISTER_GAMMA(float);
REGISTER_GAMMA(double);
#undef REGISTER_GAMMA

}  // namespace image
}  // namespace tensorflow
