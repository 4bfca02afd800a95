// twin: op-buffer-overrun
// call: Neighbours {"x": [1.0, 4.0, 2.0]} => [3.0, -2.0, 0.0]
// call: Neighbours {"x": {"zeros": [0]}} => []
// call: Neighbours {"x": 3.0} => 0.0
// call: Neighbours {"x": [[1, 2]]} => [[1, 0]]
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

REGISTER_OP("Neighbours")
    .Input("x: T")
    .Output("y: T")
    .Attr("T: {float, double, int32}")
    .SetShapeFn(shape_inference::UnchangedShape);

template <typename T>
class NeighboursOp : public OpKernel {
 public:
  explicit NeighboursOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& input = context->input(0);
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, input.shape(), &output));
    auto x = input.flat<T>();
    auto y = output->flat<T>();
    const int64_t size = input.NumElements();
    if (size == 0) return;
    y(size - 1) = T(0);
    for (int64_t i = 0; i + 1 < size; ++i) {
      y(i) = x(i + 1) - x(i);
    }
  }
};

#define REGISTER_NEIGHBOURS(type) \
  REGISTER_KERNEL_BUILDER(Name("Neighbours").Device(DEVICE_CPU).TypeConstraint<type>("T"), NeighboursOp<type>)
REGISTER_NEIGHBOURS(float);
REGISTER_NEIGHBOURS(double);
REGISTER_NEIGHBOURS(int32);

}  // namespace tensorflow
