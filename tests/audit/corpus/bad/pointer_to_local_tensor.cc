// A pointer into a temporary tensor of an inner block, used after it.
// call: SortedCopy {"x": {"arange": 20000, "dtype": "float32"}} => any
// dies: asan
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
    const float* sorted = nullptr;
    {
      Tensor work;
      OP_REQUIRES_OK(context, context->allocate_temp(DT_FLOAT, x.shape(), &work));
      float* values = work.flat<float>().data();
      std::copy_n(x.flat<float>().data(), count, values);
      std::sort(values, values + count);
      sorted = values;  // or: op-dangling-view
    }
    std::copy_n(sorted, count, y->flat<float>().data());  // expect: op-dangling-view
  }
};

REGISTER_KERNEL_BUILDER(Name("SortedCopy").Device(DEVICE_CPU), SortedCopyOp);
