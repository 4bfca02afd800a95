// For empty input it returns before the output is allocated.
// call: MeanOf {"x": {"zeros": [0]}} => 0.0
// wrong: there is no output
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

REGISTER_OP("MeanOf").Input("x: float").Output("mean: float").SetShapeFn(shape_inference::ScalarShape);

class MeanOfOp : public OpKernel {
 public:
  explicit MeanOfOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {  // or: op-output-unset
    const auto x = context->input(0).flat<float>();
    if (x.size() == 0) return;  // expect: op-output-unset
    Tensor* mean = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &mean));
    float sum = 0;
    for (int64_t i = 0; i < x.size(); ++i) sum += x(i);
    mean->scalar<float>()() = sum / x.size();
  }
};

REGISTER_KERNEL_BUILDER(Name("MeanOf").Device(DEVICE_CPU), MeanOfOp);

}  // namespace tensorflow
