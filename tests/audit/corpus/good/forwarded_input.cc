// twin: op-legacy-api
// call: AddOne {"x": [1.0, 2.0]} => [2.0, 3.0]
// call: AddOne {"x": {"zeros": [0]}} => []
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

REGISTER_OP("AddOne").Input("x: float").Output("y: float").SetShapeFn(shape_inference::UnchangedShape);

class AddOneOp : public OpKernel {
 public:
  explicit AddOneOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->forward_input_or_allocate_output({0}, 0, context->input(0).shape(), &y));
    y->flat<float>() = context->input(0).flat<float>() + 1.0f;
  }
};

REGISTER_KERNEL_BUILDER(Name("AddOne").Device(DEVICE_CPU), AddOneOp);

}  // namespace tensorflow
