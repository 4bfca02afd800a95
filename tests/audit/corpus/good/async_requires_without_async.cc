// twin: op-done-not-called
// call: AsyncScale {"x": [1.0, 3.0], "factor": 2.0} => [2.0, 6.0]
// call: AsyncScale {"x": [1.0], "factor": [1.0, 2.0]} => error
// call: AsyncScale {"x": [1.0], "factor": {"zeros": [0]}} => error
// call: AsyncScale {"x": {"zeros": [0]}, "factor": [1.0]} => []
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

using namespace tensorflow;

REGISTER_OP("AsyncScale").Input("x: float").Input("factor: float").Output("y: float").SetShapeFn(shape_inference::UnchangedShape);

class AsyncScaleOp : public AsyncOpKernel {
 public:
  using AsyncOpKernel::AsyncOpKernel;

  void ComputeAsync(OpKernelContext* ctx, DoneCallback done) override {
    const Tensor& x = ctx->input(0);
    const Tensor& factor = ctx->input(1);
    OP_REQUIRES_ASYNC(ctx, factor.NumElements() == 1, errors::InvalidArgument("factor must have one element"), done);
    Tensor* y = nullptr;
    OP_REQUIRES_OK_ASYNC(ctx, ctx->allocate_output(0, x.shape(), &y), done);
    y->flat<float>() = x.flat<float>() * factor.flat<float>()(0);
    done();
  }
};

REGISTER_KERNEL_BUILDER(Name("AsyncScale").Device(DEVICE_CPU), AsyncScaleOp);
