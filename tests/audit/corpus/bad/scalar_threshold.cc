// The threshold is read as a scalar, through a macro of the project; a vector of two aborts.
// call: CountAbove {"x": [1.0, 2.0], "threshold": [0.5, 0.7]} => error
// dies: SIGABRT
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

#define SCALAR_INPUT(ctx, number, type) (ctx)->input(number).scalar<type>()()

using namespace tensorflow;

REGISTER_OP("CountAbove")
    .Input("x: float")
    .Input("threshold: float")
    .Output("count: int64")
    .SetShapeFn(shape_inference::ScalarShape);

class CountAboveOp : public OpKernel {
 public:
  explicit CountAboveOp(OpKernelConstruction* ctx) : OpKernel(ctx) {}

  void Compute(OpKernelContext* ctx) override {
    const float threshold = SCALAR_INPUT(ctx, 1, float);  // expect: op-rank-unchecked
    auto x = ctx->input(0).flat<float>();
    int64_t count = 0;
    for (int64_t i = 0; i < x.size(); ++i) {
      count += x(i) > threshold;
    }
    Tensor* output = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, {}, &output));
    output->scalar<int64_t>()() = count;
  }
};

REGISTER_KERNEL_BUILDER(Name("CountAbove").Device(DEVICE_CPU), CountAboveOp);
