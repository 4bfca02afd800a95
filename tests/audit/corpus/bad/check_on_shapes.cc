// CHECK_EQ on the shapes that the caller gives.
// call: AddExact {"a": [1.0], "b": [1.0, 2.0]} => error
// dies: SIGABRT
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
    CHECK_EQ(a.NumElements(), b.NumElements()) << "sizes differ";  // expect: op-check-on-input
    Tensor* c = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, a.shape(), &c));
    c->flat<float>() = a.flat<float>() + b.flat<float>();
  }
};

REGISTER_KERNEL_BUILDER(Name("AddExact").Device(DEVICE_CPU), AddExactOp);

}  // namespace tensorflow
