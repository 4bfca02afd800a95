// A convolution in one dimension: strides is a list attribute of any length, whose second element is the stride.
// call: SimpleConv {"x": {"zeros": [8]}, "kernel": {"zeros": [3]}, "strides": [1, 0]} => error
// dies: SIGFPE
#include <vector>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

REGISTER_OP("SimpleConv")
    .Input("x: float")
    .Input("kernel: float")
    .Attr("strides: list(int)")
    .Output("y: float")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      shape_inference::ShapeHandle unused;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &unused));
      TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 1, &unused));
      c->set_output(0, c->Vector(c->UnknownDim()));
      return OkStatus();
    });

class SimpleConvOp : public OpKernel {
 public:
  explicit SimpleConvOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("strides", &strides_));
    OP_REQUIRES(context, strides_.size() == 2, errors::InvalidArgument("strides must have 2 elements"));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& x_tensor = context->input(0);
    const Tensor& kernel_tensor = context->input(1);
    OP_REQUIRES(context, x_tensor.dims() == 1 && kernel_tensor.dims() == 1, errors::InvalidArgument("vectors are wanted"));
    const auto x = x_tensor.vec<float>();
    const auto kernel = kernel_tensor.vec<float>();
    OP_REQUIRES(context, kernel.size() >= 1 && kernel.size() <= x.size(), errors::InvalidArgument("kernel does not fit x"));
    const int64_t stride = strides_[1];
    const int64_t count = (x.size() - kernel.size()) / stride + 1;  // expect: op-attr-unchecked
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({count}), &y));
    auto out = y->vec<float>();
    for (int64_t i = 0; i < count; ++i) {
      float sum = 0;
      for (int64_t k = 0; k < kernel.size(); ++k) sum += x(i * stride + k) * kernel(k);  // or: op-attr-unchecked
      out(i) = sum;
    }
  }

 private:
  std::vector<int64_t> strides_;
};

REGISTER_KERNEL_BUILDER(Name("SimpleConv").Device(DEVICE_CPU), SimpleConvOp);

}  // namespace tensorflow
