// twin: op-dangling-view
// call: RunningMax {"x": [5.0, 6.0]} => [1.0, 5.0, 6.0]
// call: RunningMax {"x": {"zeros": [0]}} => [-1.0]
// call: RunningMax {"x": {"arange": 100, "dtype": "float32"}} => any
#include <vector>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

REGISTER_OP("RunningMax").Input("x: float").Output("peaks: float").SetShapeFn([](shape_inference::InferenceContext* c) {
  c->set_output(0, c->Vector(c->UnknownDim()));
  return OkStatus();
});

class RunningMaxOp : public OpKernel {
 public:
  explicit RunningMaxOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const auto x = context->input(0).flat<float>();
    std::vector<float> peaks(1, -1.0f);
    for (int64_t i = 0; i < x.size(); ++i) {
      if (x(i) > peaks.back()) peaks.push_back(x(i));
      peaks.front() += 1.0f;
    }
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({static_cast<int64_t>(peaks.size())}), &output));
    std::copy(peaks.begin(), peaks.end(), output->flat<float>().data());
  }
};

REGISTER_KERNEL_BUILDER(Name("RunningMax").Device(DEVICE_CPU), RunningMaxOp);

}  // namespace tensorflow
