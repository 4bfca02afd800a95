// twin: op-sizes-unrelated
// call: WeightedTotal {"values": [1.0, 2.0], "weights": [3.0, 4.0]} => 11.0
// call: WeightedTotal {"values": [1.0, 2.0, 3.0], "weights": [3.0]} => error
// call: WeightedTotal {"values": {"zeros": [0]}, "weights": {"zeros": [2, 0]}} => 0.0
// call: WeightedTotal {"values": 2.0, "weights": [5.0]} => 10.0
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
    OP_REQUIRES(c, c->input(0).NumElements() == c->input(1).NumElements(),
                errors::InvalidArgument("values and weights must have as many elements as each other"));
    Tensor* total = nullptr;
    OP_REQUIRES_OK(c, c->allocate_output(0, TensorShape({}), &total));
    double sum = 0;
    for (int64_t i = 0; i < values.size(); ++i) {
      sum += static_cast<double>(values(i)) * weights(i);
    }
    total->scalar<float>()() = static_cast<float>(sum);
  }
};

REGISTER_KERNEL_BUILDER(Name("WeightedTotal").Device(DEVICE_CPU), WeightedTotalOp);

}  // namespace
}  // namespace tensorflow
