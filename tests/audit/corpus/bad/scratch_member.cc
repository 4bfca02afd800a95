// A scratch vector is a member, so that calls share it.
// call: ReverseAll {"x": {"arange": 50000, "dtype": "int32"}} => any
// threads: 6
// repeats: 80
// dies: asan
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
    scratch_ = std::vector<int32>();  // expect: op-kernel-state
    for (int64_t i = 0; i < values.size(); ++i) scratch_.push_back(values(i));  // or: op-kernel-state
    std::reverse(scratch_.begin(), scratch_.end());  // or: op-kernel-state
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, x.shape(), &y));
    auto out = y->flat<int32>();
    for (int64_t i = 0; i < out.size(); ++i) out(i) = scratch_[i];
  }

 private:
  std::vector<int32> scratch_;
};

REGISTER_KERNEL_BUILDER(Name("ReverseAll").Device(DEVICE_CPU), ReverseAllOp);

}  // namespace tensorflow
