// array_of_ten.cc as it should be: the array is as long as what is written into it.
#include <algorithm>
#include <vector>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

using namespace tensorflow;

REGISTER_OP("ArrayOfTen").Input("n: int32").Output("y: int32");

__attribute__((noinline)) int FillAndSum(int n) {
  std::vector<int> a(std::max(n, 10));
  for (int i = 0; i < n; ++i) a[i] = i;
  int sum = 0;
  for (int i = 0; i < 10; ++i) sum += a[i];
  return sum;
}

class ArrayOfTenOp : public OpKernel {
 public:
  explicit ArrayOfTenOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &y));
    y->scalar<int>()() = FillAndSum(context->input(0).scalar<int>()());
  }
};

REGISTER_KERNEL_BUILDER(Name("ArrayOfTen").Device(DEVICE_CPU), ArrayOfTenOp);
