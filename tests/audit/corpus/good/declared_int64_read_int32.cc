// twin: op-type-unchecked
// call: PairSums {"ids": {"value": [1, 2, 4], "dtype": "int64"}} => 7
// call: PairSums {"ids": {"zeros": [0], "dtype": "int64"}} => 0
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

REGISTER_OP("PairSums")
    .Input("ids: int64")
    .Output("total: int64")
    .SetShapeFn(shape_inference::ScalarShape);

class PairSumsOp : public OpKernel {
 public:
  explicit PairSumsOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const auto ids = context->input(0).flat<int64_t>();
    Tensor* total = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &total));
    int64_t sum = 0;
    for (int64_t i = 0; i < ids.size(); ++i) sum ^= ids(i);
    total->scalar<int64_t>()() = sum;
  }
};

REGISTER_KERNEL_BUILDER(Name("PairSums").Device(DEVICE_CPU), PairSumsOp);

}  // namespace tensorflow
