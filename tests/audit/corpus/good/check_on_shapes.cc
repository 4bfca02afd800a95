// A CHECK on what the kernel itself has made sure of stays.
// twin: op-check-on-input
// call: AddExact {"a": [1.0, 2.0], "b": [1.0, 2.0]} => [2.0, 4.0]
// call: AddExact {"a": [1.0], "b": [1.0, 2.0]} => error
// call: AddExact {"a": {"zeros": [0]}, "b": {"zeros": [0]}} => []
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

REGISTER_OP("AddExact")
    .Input("a: float")
    .Input("b: float")
    .Output("c: float")
    .SetShapeFn(shape_inference::UnchangedShape);

class AddExactOp : public OpKernel {
 public:
  explicit AddExactOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& a = context->input(0);
    const Tensor& b = context->input(1);
    OP_REQUIRES(context, a.NumElements() == b.NumElements(), errors::InvalidArgument("sizes differ"));
    Tensor* c = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, a.shape(), &c));
    DCHECK(c != nullptr);
    CHECK_EQ(c->NumElements(), a.NumElements());
    c->flat<float>() = a.flat<float>() + b.flat<float>();
  }
};

REGISTER_KERNEL_BUILDER(Name("AddExact").Device(DEVICE_CPU), AddExactOp);

}  // namespace tensorflow
