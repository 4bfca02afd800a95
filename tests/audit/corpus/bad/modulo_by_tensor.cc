// Integer modulo by elements of a tensor that may be 0.
// call: ModEach {"x": {"value": [5, 6], "dtype": "uint32"}, "y": {"value": [2, 0], "dtype": "uint32"}} => error
// dies: SIGFPE
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

REGISTER_OP("ModEach")
    .Input("x: T")
    .Input("y: T")
    .Output("z: T")
    .Attr("T: {uint8, uint32, uint64}")
    .SetShapeFn(shape_inference::UnchangedShape);

template <typename T>
class ModEachOp : public OpKernel {
 public:
  explicit ModEachOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& x = context->input(0);
    const Tensor& y = context->input(1);
    OP_REQUIRES(context, x.shape() == y.shape(), errors::InvalidArgument("shapes differ"));
    Tensor* z = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, x.shape(), &z));
    const auto a = x.flat<T>();
    const auto b = y.flat<T>();
    auto out = z->flat<T>();
    for (int64_t i = 0; i < a.size(); ++i) {
      out(i) = a(i) % b(i);  // expect: op-division-unchecked
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("ModEach").Device(DEVICE_CPU).TypeConstraint<uint8>("T"), ModEachOp<uint8>);
REGISTER_KERNEL_BUILDER(Name("ModEach").Device(DEVICE_CPU).TypeConstraint<uint32>("T"), ModEachOp<uint32>);
REGISTER_KERNEL_BUILDER(Name("ModEach").Device(DEVICE_CPU).TypeConstraint<uint64>("T"), ModEachOp<uint64>);

}  // namespace tensorflow
