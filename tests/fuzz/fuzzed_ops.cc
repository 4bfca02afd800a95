// Three ops that break a promise without killing anybody, and then those of tests/prove/ranks.cc.
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

using namespace tensorflow;

// The shape function has all elements, the kernel every second one.
REGISTER_OP("EverySecond").Input("x: float").Output("y: float").SetShapeFn([](shape_inference::InferenceContext* c) {
  c->set_output(0, c->input(0));
  return c->construction_status();
});

class EverySecondOp : public OpKernel {
 public:
  explicit EverySecondOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& x = context->input(0);
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({x.NumElements() / 2}), &y));
    y->flat<float>().setZero();
  }
};

// A copy of a tensor shares its memory.
REGISTER_OP("Doubled").Input("x: float").Output("y: float");

class DoubledOp : public OpKernel {
 public:
  explicit DoubledOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    Tensor copy = context->input(0);
    auto elements = copy.flat<float>();
    for (int64_t at = 0; at < elements.size(); ++at) elements(at) = 2 * elements(at) + 1;
    context->set_output(0, copy);
  }
};

// TensorFlow uses a kernel again.
REGISTER_OP("Counted").Input("x: float").Output("y: int32");

class CountedOp : public OpKernel {
 public:
  explicit CountedOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &y));
    y->scalar<int32_t>()() = ++calls_;
  }

 private:
  int calls_ = 0;
};

REGISTER_KERNEL_BUILDER(Name("EverySecond").Device(DEVICE_CPU), EverySecondOp);
REGISTER_KERNEL_BUILDER(Name("Doubled").Device(DEVICE_CPU), DoubledOp);
REGISTER_KERNEL_BUILDER(Name("Counted").Device(DEVICE_CPU), CountedOp);

#include "../prove/ranks.cc"
