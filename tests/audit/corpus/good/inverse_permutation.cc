// The elements are checked in a loop of their own, before the second one uses them.
// twin: op-index-unchecked
// call: InvertOrder {"order": [2, 0, 1]} => [1, 2, 0]
// call: InvertOrder {"order": [2, 0, 3]} => error
// call: InvertOrder {"order": [2, 0, -1]} => error
// call: InvertOrder {"order": 0} => 0
// call: InvertOrder {"order": {"zeros": [0, 3], "dtype": "int32"}} => []
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
    OP_REQUIRES(ctx, order.size() <= std::numeric_limits<int32>::max(), tensorflow::errors::InvalidArgument("too many"));
    for (int64_t i = 0; i < order.size(); i++) {
      OP_REQUIRES(ctx, order(i) >= 0 && order(i) < order.size(),
                  tensorflow::errors::InvalidArgument("order[", i, "] = ", order(i), " is out of range"));
    }
    for (int32 i = 0, n = static_cast<int32>(order.size()); i < n; i++) {
      const int32 target = order(i);
      inverse(target) = i;
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("InvertOrder").Device(tensorflow::DEVICE_CPU), InvertOrderOp);

}  // namespace
