// Inverse permutation: the target of each write comes from the tensor.
// call: InvertOrder {"order": {"fill": 400000000, "shape": [8], "dtype": "int32"}} => error
// dies: SIGSEGV
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace {

using tensorflow::int32;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

REGISTER_OP("InvertOrder")
    .Input("order: int32")
    .Output("inverse: int32")
    .SetShapeFn(tensorflow::shape_inference::UnchangedShape);

class InvertOrderOp final : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    const Tensor& order_tensor = ctx->input(0);
    Tensor* inverse_tensor = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, order_tensor.shape(), &inverse_tensor));
    const auto order = order_tensor.flat<int32>();
    auto inverse = inverse_tensor->flat<int32>();
    inverse.setConstant(-1);
    for (int32 i = 0, n = static_cast<int32>(order.size()); i < n; i++) {
      const int32 target = order(i);
      inverse(target) = i;  // expect: op-index-unchecked
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("InvertOrder").Device(tensorflow::DEVICE_CPU), InvertOrderOp);

}  // namespace
