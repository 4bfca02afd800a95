// twin: op-lock-order
// call: MoveForward {"amount": 1} => 1
// call: MoveBack {"amount": 1} => 0
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

#include "tensorflow/core/platform/mutex.h"

#include <vector>

namespace accounts {

using namespace tensorflow;

mutex first_mu;
mutex second_mu;
int64_t first_total = 0;
int64_t second_total = 0;
std::vector<int64_t> journal(200000);

REGISTER_OP("MoveForward").Input("amount: int32").Output("total: int64").SetIsStateful().SetShapeFn(
    shape_inference::ScalarShape);
REGISTER_OP("MoveBack").Input("amount: int32").Output("total: int64").SetIsStateful().SetShapeFn(
    shape_inference::ScalarShape);

class MoveForwardOp : public OpKernel {
 public:
  explicit MoveForwardOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    Tensor* total = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &total));
    mutex_lock first(first_mu);
    --first_total;
    for (int64_t& entry : journal) entry = (entry + first_total) % 1000003;
    mutex_lock second(second_mu);
    total->scalar<int64_t>()() = ++second_total;
  }
};

class MoveBackOp : public OpKernel {
 public:
  explicit MoveBackOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    Tensor* total = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &total));
    mutex_lock first(first_mu);
    mutex_lock second(second_mu);
    --second_total;
    total->scalar<int64_t>()() = ++first_total;
  }
};

REGISTER_KERNEL_BUILDER(Name("MoveForward").Device(DEVICE_CPU), MoveForwardOp);
REGISTER_KERNEL_BUILDER(Name("MoveBack").Device(DEVICE_CPU), MoveBackOp);

}  // namespace accounts
