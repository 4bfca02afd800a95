// A reference to the first element of a vector that grows meanwhile.
// call: RunningMax {"x": {"arange": 100, "dtype": "float32"}} => any
// dies: asan
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
    float& first = peaks.front();  // or: op-dangling-view
    for (int64_t i = 0; i < x.size(); ++i) {
      if (x(i) > peaks.back()) peaks.push_back(x(i));
      first += 1.0f;  // expect: op-dangling-view
    }
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({static_cast<int64_t>(peaks.size())}), &output));
    std::copy(peaks.begin(), peaks.end(), output->flat<float>().data());
  }
};

REGISTER_KERNEL_BUILDER(Name("RunningMax").Device(DEVICE_CPU), RunningMaxOp);

}  // namespace tensorflow
