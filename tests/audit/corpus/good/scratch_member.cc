// twin: op-kernel-state
// call: ReverseAll {"x": [1, 2, 3]} => [3, 2, 1]
// call: ReverseAll {"x": {"zeros": [0], "dtype": "int32"}} => []
#include <algorithm>
#include <vector>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

REGISTER_OP("ReverseAll").Input("x: int32").Output("y: int32").SetShapeFn(shape_inference::UnchangedShape);

class ReverseAllOp : public OpKernel {
 public:
  explicit ReverseAllOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& x = context->input(0);
    const auto values = x.flat<int32>();
    std::vector<int32> scratch;
    for (int64_t i = 0; i < values.size(); ++i) scratch.push_back(values(i));
    std::reverse(scratch.begin(), scratch.end());
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, x.shape(), &y));
    auto out = y->flat<int32>();
    for (int64_t i = 0; i < out.size(); ++i) out(i) = scratch[i];
  }
};

REGISTER_KERNEL_BUILDER(Name("ReverseAll").Device(DEVICE_CPU), ReverseAllOp);

}  // namespace tensorflow
