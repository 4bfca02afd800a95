// twin: op-dangling-view
// call: SortedCopy {"x": [3.0, 1.0, 2.0]} => [1.0, 2.0, 3.0]
// call: SortedCopy {"x": {"zeros": [0]}} => []
#include <algorithm>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

using namespace tensorflow;

REGISTER_OP("SortedCopy").Input("x: float").Output("y: float").SetShapeFn(shape_inference::UnchangedShape);

class SortedCopyOp : public OpKernel {
 public:
  explicit SortedCopyOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& x = context->input(0);
    const int64_t count = x.NumElements();
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, x.shape(), &y));
    Tensor work;
    const float* sorted = nullptr;
    {
      OP_REQUIRES_OK(context, context->allocate_temp(DT_FLOAT, x.shape(), &work));
      float* values = work.flat<float>().data();
      std::copy_n(x.flat<float>().data(), count, values);
      std::sort(values, values + count);
      sorted = values;
    }
    std::copy_n(sorted, count, y->flat<float>().data());
  }
};

REGISTER_KERNEL_BUILDER(Name("SortedCopy").Device(DEVICE_CPU), SortedCopyOp);
