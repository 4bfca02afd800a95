// twin: op-size-overflow
// call: TakeVolume {"x": [1.0, 2.0, 3.0], "shape": [1, 2]} => 3.0
// call: TakeVolume {"x": {"zeros": [10]}, "shape": [65536, 65536, 2]} => error
// call: TakeVolume {"x": {"zeros": [10]}, "shape": [2147483647, 2147483647, 2147483647, 2147483647]} => error
// call: TakeVolume {"x": {"zeros": [10]}, "shape": [-1]} => error
// call: TakeVolume {"x": {"zeros": [0]}, "shape": [1]} => error
// call: TakeVolume {"x": {"zeros": [0]}, "shape": []} => error
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

using namespace tensorflow;

REGISTER_OP("TakeVolume")
    .Input("x: float")
    .Input("shape: int32")
    .Output("sum: float")
    .SetShapeFn(shape_inference::ScalarShape);

class TakeVolumeOp : public OpKernel {
 public:
  explicit TakeVolumeOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const auto x = context->input(0).flat<float>();
    const auto shape = context->input(1).flat<int32>();
    int64_t volume = 1;
    for (int64_t i = 0; i < shape.size(); ++i) {
      OP_REQUIRES(context, shape(i) > 0, errors::InvalidArgument("sizes must be positive"));
      OP_REQUIRES(context, shape(i) <= x.size() / volume, errors::InvalidArgument("x is smaller than the shape"));
      volume *= shape(i);
    }
    OP_REQUIRES(context, volume <= x.size(), errors::InvalidArgument("x is empty"));
    float sum = 0;
    for (int64_t i = 0; i < volume; ++i) sum += x(i);
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &output));
    output->scalar<float>()() = sum;
  }
};

REGISTER_KERNEL_BUILDER(Name("TakeVolume").Device(DEVICE_CPU), TakeVolumeOp);
