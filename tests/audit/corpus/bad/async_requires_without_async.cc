// OP_REQUIRES in ComputeAsync returns without calling done; TensorFlow notices that, and aborts.
// call: AsyncScale {"x": [1.0], "factor": [1.0, 2.0]} => error
// dies: SIGABRT
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

using namespace tensorflow;

REGISTER_OP("AsyncScale").Input("x: float").Input("factor: float").Output("y: float").SetShapeFn(shape_inference::UnchangedShape);

class AsyncScaleOp : public AsyncOpKernel {
 public:
  using AsyncOpKernel::AsyncOpKernel;

  void ComputeAsync(OpKernelContext* ctx, DoneCallback done) override {  // or: op-done-not-called
    const Tensor& x = ctx->input(0);
    const Tensor& factor = ctx->input(1);
    OP_REQUIRES(ctx, factor.NumElements() == 1, errors::InvalidArgument("factor must have one element"));  // expect: op-done-not-called
    Tensor* y = nullptr;
    OP_REQUIRES_OK_ASYNC(ctx, ctx->allocate_output(0, x.shape(), &y), done);
    y->flat<float>() = x.flat<float>() * factor.flat<float>()(0);
    done();
  }
};

REGISTER_KERNEL_BUILDER(Name("AsyncScale").Device(DEVICE_CPU), AsyncScaleOp);
