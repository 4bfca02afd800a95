// Copies as many 8-byte elements as there are 4-byte ones.
// call: CopyFloats {"x": {"zeros": [1000]}} => any
// dies: asan
#include <cstring>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

REGISTER_OP("CopyFloats").Input("x: float").Output("y: float").SetShapeFn(shape_inference::UnchangedShape);

class CopyFloatsOp : public OpKernel {
 public:
  explicit CopyFloatsOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& x = context->input(0);
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, x.shape(), &y));
    const float* source = x.flat<float>().data();
    float* target = y->flat<float>().data();
    const size_t count = static_cast<size_t>(x.NumElements());
    memcpy(target, source, count * sizeof(double));  // expect: op-buffer-overrun
  }
};

REGISTER_KERNEL_BUILDER(Name("CopyFloats").Device(DEVICE_CPU), CopyFloatsOp);

}  // namespace tensorflow
