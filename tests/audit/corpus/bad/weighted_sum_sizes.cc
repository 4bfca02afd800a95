// Both inputs are run through up to the size of the first.
// call: WeightedTotal {"values": {"fill": 1.0, "shape": [64], "dtype": "float32"}, "weights": [1.0]} => error
// dies: asan
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {
namespace {

REGISTER_OP("WeightedTotal")
    .Input("values: float")
    .Input("weights: float")
    .Output("total: float")
    .SetShapeFn(shape_inference::ScalarShape);

class WeightedTotalOp : public OpKernel {
 public:
  explicit WeightedTotalOp(OpKernelConstruction* c) : OpKernel(c) {}

  void Compute(OpKernelContext* c) override {
    auto values = c->input(0).flat<float>();
    auto weights = c->input(1).flat<float>();
    Tensor* total = nullptr;
    OP_REQUIRES_OK(c, c->allocate_output(0, TensorShape({}), &total));
    double sum = 0;
    for (int64_t i = 0; i < values.size(); ++i) {
      sum += static_cast<double>(values(i)) * weights(i);  // expect: op-sizes-unrelated
    }
    total->scalar<float>()() = static_cast<float>(sum);
  }
};

REGISTER_KERNEL_BUILDER(Name("WeightedTotal").Device(DEVICE_CPU), WeightedTotalOp);

}  // namespace
}  // namespace tensorflow
