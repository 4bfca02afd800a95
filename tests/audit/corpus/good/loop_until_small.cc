// twin: op-unbounded-loop
// call: HalvingSteps {"start": 8.0, "limit": 1.0} => 3
// call: HalvingSteps {"start": 8.0, "limit": -1.0} => 1000
// call: HalvingSteps {"start": [], "limit": -1.0} => error
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

using namespace tensorflow;

REGISTER_OP("HalvingSteps").Input("start: float").Input("limit: float").Output("steps: int64").SetShapeFn(shape_inference::ScalarShape);

class HalvingStepsOp : public OpKernel {
 public:
  explicit HalvingStepsOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    OP_REQUIRES(context, context->input(0).NumElements() == 1 && context->input(1).NumElements() == 1,
                errors::InvalidArgument("start and limit must have one element each"));
    float value = context->input(0).flat<float>()(0);
    const float limit = context->input(1).flat<float>()(0);
    uint64 steps = 0;
    while (value > limit && steps < 1000) {
      value *= 0.5f;
      ++steps;
    }
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &output));
    output->scalar<int64_t>()() = static_cast<int64_t>(steps);
  }
};

REGISTER_KERNEL_BUILDER(Name("HalvingSteps").Device(DEVICE_CPU), HalvingStepsOp);
