// An op without a shape function.
// call: NegateAll {"x": [1.0]} => [-1.0]
// advice: shapes are unknown in a graph
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

using namespace tensorflow;

REGISTER_OP("NegateAll").Input("x: float").Output("y: float");  // expect-note: op-no-shape-function

class NegateAllOp : public OpKernel {
 public:
  explicit NegateAllOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, context->input(0).shape(), &y));
    y->flat<float>() = -context->input(0).flat<float>();
  }
};

REGISTER_KERNEL_BUILDER(Name("NegateAll").Device(DEVICE_CPU), NegateAllOp);
