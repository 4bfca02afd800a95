// The buffer is allocated in a helper whose Status the caller drops; an empty tensor is then written to.
// call: CumulativeSum {"x": {"zeros": [5]}, "copies": 9000000000000} => error
// dies: SIGSEGV
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {
namespace {

Status MakeBuffer(OpKernelContext* context, int64_t size, Tensor* buffer) {
  TensorShape shape;
  TF_RETURN_IF_ERROR(shape.AddDimWithStatus(size));
  return context->allocate_temp(DT_DOUBLE, shape, buffer);
}

REGISTER_OP("CumulativeSum")
    .Input("x: float")
    .Attr("copies: int >= 1 = 1")
    .Output("y: float")
    .SetShapeFn(shape_inference::UnchangedShape);

class CumulativeSumOp : public OpKernel {
 public:
  explicit CumulativeSumOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("copies", &copies_));
    OP_REQUIRES(context, copies_ <= int64_t{1} << 44, errors::InvalidArgument("too many copies"));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& x_tensor = context->input(0);
    const auto x = x_tensor.flat<float>();
    OP_REQUIRES(context, x.size() <= 1 << 16, errors::InvalidArgument("x is too large"));
    Tensor buffer;
    MakeBuffer(context, x.size() * copies_, &buffer);  // expect: op-status-ignored
    double* sums = static_cast<double*>(buffer.data());
    double sum = 0;
    for (int64_t i = 0; i < x.size(); ++i) sums[i] = sum += x(i);
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, x_tensor.shape(), &y));
    auto out = y->flat<float>();
    for (int64_t i = 0; i < x.size(); ++i) out(i) = static_cast<float>(sums[i]);
  }

 private:
  int64_t copies_;
};

REGISTER_KERNEL_BUILDER(Name("CumulativeSum").Device(DEVICE_CPU), CumulativeSumOp);

}  // namespace
}  // namespace tensorflow
