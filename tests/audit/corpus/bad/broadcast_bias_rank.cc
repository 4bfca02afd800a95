// The bias has to have as many elements as the last dimension; a scalar has no last dimension.
// call: AddBiasTo {"x": 1.0, "bias": [1.0]} => error
// dies: SIGABRT
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

using namespace tensorflow;

REGISTER_OP("AddBiasTo").Input("x: float").Input("bias: float").Output("y: float").SetShapeFn(shape_inference::UnchangedShape);

class AddBiasToOp : public OpKernel {
 public:
  explicit AddBiasToOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& x = context->input(0);
    const Tensor& bias = context->input(1);
    OP_REQUIRES(context, bias.dims() == 1, errors::InvalidArgument("bias must be a vector"));
    const int64_t channels = x.dim_size(x.dims() - 1);  // expect: op-rank-unchecked
    OP_REQUIRES(context, bias.dim_size(0) == channels, errors::InvalidArgument("bias does not fit x"));
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, x.shape(), &y));
    if (channels == 0) return;
    const auto in = x.flat_inner_dims<float>();
    const auto add = bias.vec<float>();
    auto out = y->flat_inner_dims<float>();
    for (int64_t r = 0; r < in.dimension(0); ++r) {
      for (int64_t c = 0; c < channels; ++c) out(r, c) = in(r, c) + add(c);
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("AddBiasTo").Device(DEVICE_CPU), AddBiasToOp);
