// The difference of each element and the next one: the last has none.
// call: Neighbours {"x": {"fill": 1.0, "shape": [16], "dtype": "float32"}} => any
// dies: asan
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
    for (int64_t i = 0; i < size; ++i) {
      y(i) = x(i + 1) - x(i);  // expect: op-buffer-overrun
    }
  }
};

#define REGISTER_NEIGHBOURS(type) \
  REGISTER_KERNEL_BUILDER(Name("Neighbours").Device(DEVICE_CPU).TypeConstraint<type>("T"), NeighboursOp<type>)
REGISTER_NEIGHBOURS(float);
REGISTER_NEIGHBOURS(double);
REGISTER_NEIGHBOURS(int32);

}  // namespace tensorflow
