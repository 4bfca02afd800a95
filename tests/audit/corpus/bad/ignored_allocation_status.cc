// The status of allocate_output is not looked at: without memory, the pointer stays null.
// call: Outer {"a": {"zeros": [4000000]}, "b": {"zeros": [4000000]}} => error
// dies: SIGSEGV
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

REGISTER_OP("Outer").Input("a: float").Input("b: float").Output("c: float").SetShapeFn([](shape_inference::InferenceContext* c) {
  shape_inference::ShapeHandle a, b;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &a));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 1, &b));
  c->set_output(0, c->Matrix(c->Dim(a, 0), c->Dim(b, 0)));
  return OkStatus();
});

class OuterOp : public OpKernel {
 public:
  explicit OuterOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& a = context->input(0);
    const Tensor& b = context->input(1);
    OP_REQUIRES(context, a.dims() == 1 && b.dims() == 1, errors::InvalidArgument("a and b must be vectors"));
    Tensor* c = nullptr;
    context->allocate_output(0, TensorShape({a.dim_size(0), b.dim_size(0)}), &c);  // expect: op-status-ignored
    const auto left = a.vec<float>();
    const auto right = b.vec<float>();
    auto out = c->matrix<float>();  // or: op-null-input
    for (int64_t i = 0; i < left.size(); ++i) {
      for (int64_t j = 0; j < right.size(); ++j) out(i, j) = left(i) * right(j);
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("Outer").Device(DEVICE_CPU), OuterOp);

}  // namespace tensorflow
