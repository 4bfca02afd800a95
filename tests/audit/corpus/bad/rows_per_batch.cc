// Divides by the first dimension of an input, which may be 0.
// call: RowsPerBatch {"x": {"zeros": [0, 3]}, "lengths": {"zeros": [8], "dtype": "int32"}} => error
// dies: SIGFPE
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

using namespace tensorflow;

REGISTER_OP("RowsPerBatch")
    .Input("x: float")
    .Input("lengths: int32")
    .Output("rows: int64")
    .SetShapeFn(shape_inference::ScalarShape);

class RowsPerBatchOp : public OpKernel {
 public:
  explicit RowsPerBatchOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& x = context->input(0);
    OP_REQUIRES(context, x.dims() >= 1, errors::InvalidArgument("x must be at least 1-D"));
    const int64_t batch = x.dim_size(0);
    const int64_t total = context->input(1).NumElements();
    Tensor* rows = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &rows));
    rows->scalar<int64_t>()() = (total + batch - 1) / batch;  // expect: op-division-unchecked
  }
};

REGISTER_KERNEL_BUILDER(Name("RowsPerBatch").Device(DEVICE_CPU), RowsPerBatchOp);
