// A fixed-size Eigen tensor, 12 MB of it, as a local variable.
// call: EdgeEnergy {"image": [[1.0, 2.0], [3.0, 4.0]]} => 10.0
// dies: SIGSEGV
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "unsupported/Eigen/CXX11/Tensor"

namespace tensorflow {

REGISTER_OP("EdgeEnergy").Input("image: float").Output("energy: float").SetShapeFn(shape_inference::ScalarShape);

class EdgeEnergyOp : public OpKernel {
 public:
  explicit EdgeEnergyOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& image = context->input(0);
    OP_REQUIRES(context, image.dims() == 2, errors::InvalidArgument("image must be a matrix"));
    OP_REQUIRES(context, image.dim_size(0) <= 1000 && image.dim_size(1) <= 1500,
                errors::InvalidArgument("image must be at most 1000 x 1500"));
    Eigen::TensorFixedSize<double, Eigen::Sizes<1000, 1500>> work;  // expect: op-large-frame
    work.setZero();
    const auto pixels = image.matrix<float>();
    for (int64_t y = 0; y < pixels.dimension(0); ++y) {
      for (int64_t x = 0; x < pixels.dimension(1); ++x) work(y, x) = pixels(y, x);
    }
    double total = 0;
    for (int64_t y = 0; y < pixels.dimension(0); ++y) {
      for (int64_t x = 0; x < pixels.dimension(1); ++x) total += work(y, x);
    }
    Tensor* energy = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &energy));
    energy->scalar<float>()() = static_cast<float>(total);
  }
};

REGISTER_KERNEL_BUILDER(Name("EdgeEnergy").Device(DEVICE_CPU), EdgeEnergyOp);

}  // namespace tensorflow
