// twin: op-buffer-overrun, op-element-unchecked
// call: FirstTen {"x": {"fill": 1.0, "shape": [10], "dtype": "float32"}} => 10.0
// call: FirstTen {"x": {"fill": 1.0, "shape": [2, 6], "dtype": "float32"}} => 10.0
// call: FirstTen {"x": {"fill": 1.0, "shape": [9], "dtype": "float32"}} => error
// call: FirstTen {"x": {"zeros": [0]}} => error
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

using namespace tensorflow;

#define SLOTS 10

REGISTER_OP("FirstTen").Input("x: float").Output("sum: float").SetShapeFn(shape_inference::ScalarShape);

class FirstTenOp : public OpKernel {
 public:
  explicit FirstTenOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    auto x = context->input(0).flat<float>();
    OP_REQUIRES(context, x.size() >= SLOTS, errors::InvalidArgument("x needs ", SLOTS, " elements"));
    float slots[SLOTS];
    for (int i = 0; i < SLOTS; ++i) slots[i] = x(i);
    float sum = 0;
    for (int i = 0; i < SLOTS; ++i) {
      sum += slots[i];
    }
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &output));
    output->scalar<float>()() = sum;
  }
};

REGISTER_KERNEL_BUILDER(Name("FirstTen").Device(DEVICE_CPU), FirstTenOp);
