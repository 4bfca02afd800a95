// twin: op-buffer-overrun
// call: CopyFloats {"x": [1.0, 2.0]} => [1.0, 2.0]
// call: CopyFloats {"x": {"zeros": [0]}} => []
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
    if (count > 0) memcpy(target, source, count * sizeof(*source));
  }
};

REGISTER_KERNEL_BUILDER(Name("CopyFloats").Device(DEVICE_CPU), CopyFloatsOp);

}  // namespace tensorflow
