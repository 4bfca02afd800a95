// twin: op-size-overflow, op-index-unchecked
// call: Stride {"x": [1.0, 2.0, 3.0, 4.0], "step": 2, "count": 2} => 4.0
// call: Stride {"x": {"zeros": [100]}, "step": 2000000000, "count": 2} => error
// call: Stride {"x": {"zeros": [100]}, "step": -1, "count": 2} => error
// call: Stride {"x": {"zeros": [0]}, "step": 1, "count": 1} => error
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

REGISTER_OP("Stride")
    .Input("x: float")
    .Input("step: int32")
    .Input("count: int32")
    .Output("sum: float")
    .SetShapeFn(shape_inference::ScalarShape);

class StrideOp : public OpKernel {
 public:
  explicit StrideOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const auto x = context->input(0).flat<float>();
    OP_REQUIRES(context, context->input(1).NumElements() == 1 && context->input(2).NumElements() == 1,
                errors::InvalidArgument("step and count must have one element each"));
    const int32 step = context->input(1).flat<int32>()(0);
    const int32 count = context->input(2).flat<int32>()(0);
    OP_REQUIRES(context, step > 0 && count > 0, errors::InvalidArgument("step and count must be positive"));
    const int64_t last = int64_t{step} * count;
    OP_REQUIRES(context, last <= x.size(), errors::InvalidArgument("x is too short"));
    float sum = 0;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = i * step;
      if (at < x.size()) sum += x(at);
    }
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &output));
    output->scalar<float>()() = sum;
  }
};

REGISTER_KERNEL_BUILDER(Name("Stride").Device(DEVICE_CPU), StrideOp);

}  // namespace tensorflow
