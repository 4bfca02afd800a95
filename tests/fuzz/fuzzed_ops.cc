// Three ops that break a promise without killing anybody, three that die in one way of being called only, and then those
// of tests/prove/ranks.cc.
#include <unistd.h>

#include <memory>
#include <vector>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_op_kernel.h"
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

// Threads share a kernel, and with it the member.
REGISTER_OP("Scratched").Input("x: int32").Output("y: int32").SetShapeFn(shape_inference::UnchangedShape);
REGISTER_OP("LockedScratched").Input("x: int32").Output("y: int32").SetShapeFn(shape_inference::UnchangedShape);

template <bool locked>
class ScratchedOp : public OpKernel {
 public:
  explicit ScratchedOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, context->input(0).shape(), &y));
    std::unique_ptr<mutex_lock> lock;
    if (locked) lock = std::make_unique<mutex_lock>(mutex_);
    const auto x = context->input(0).flat<int32>();
    scratch_.reset(new std::vector<int32>(x.data(), x.data() + x.size()));
    usleep(50);  // it takes its time
    std::copy(scratch_->begin(), scratch_->end(), y->flat<int32>().data());
  }

 private:
  mutex mutex_;
  std::unique_ptr<std::vector<int32>> scratch_;
};

// A graph counts how often a kernel is done; an eager call does not.
REGISTER_OP("TwiceDone").Input("x: float").Output("y: float").SetShapeFn(shape_inference::UnchangedShape);

class TwiceDoneOp : public AsyncOpKernel {
 public:
  explicit TwiceDoneOp(OpKernelConstruction* context) : AsyncOpKernel(context) {}

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    context->set_output(0, context->input(0));
    done();
    done();
  }
};

// A resource has nothing in most of its places, and which one is used comes from an input.
class Slots : public ResourceBase {
 public:
  explicit Slots(int64_t many) : values(many + 8) { values[0] = std::make_unique<float>(0); }
  std::string DebugString() const override { return "slots"; }
  std::vector<std::unique_ptr<float>> values;
};

REGISTER_OP("SlotsHandle")
    .Output("slots: resource")
    .Attr("many: int >= 1")
    .Attr("container: string = ''")
    .Attr("shared_name: string = ''")
    .SetIsStateful();
REGISTER_OP("PutIntoSlots").Input("slots: resource").Input("at: int64").Output("y: float").SetIsStateful();

class SlotsHandleOp : public ResourceOpKernel<Slots> {
 public:
  explicit SlotsHandleOp(OpKernelConstruction* context) : ResourceOpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("many", &many_));
    OP_REQUIRES(context, many_ <= 1 << 16, errors::InvalidArgument("too many slots"));
  }

 private:
  Status CreateResource(Slots** slots) override {
    *slots = new Slots(many_);
    return OkStatus();
  }

  int64_t many_;
};

class PutIntoSlotsOp : public OpKernel {
 public:
  explicit PutIntoSlotsOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    core::RefCountPtr<Slots> slots;
    OP_REQUIRES_OK(context, LookupResource(context, HandleFromInput(context, 0), &slots));
    const Tensor& at = context->input(1);
    OP_REQUIRES(context, at.NumElements() == 1, errors::InvalidArgument("at must have one element"));
    const int64_t place = at.flat<int64_t>()(0);
    const int64_t many = slots->values.size();
    OP_REQUIRES(context, place >= 0 && place < many, errors::InvalidArgument("at must be a place"));
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &y));
    y->scalar<float>()() = *slots->values[place];
  }
};

REGISTER_KERNEL_BUILDER(Name("Scratched").Device(DEVICE_CPU), ScratchedOp<false>);
REGISTER_KERNEL_BUILDER(Name("LockedScratched").Device(DEVICE_CPU), ScratchedOp<true>);
REGISTER_KERNEL_BUILDER(Name("TwiceDone").Device(DEVICE_CPU), TwiceDoneOp);
REGISTER_KERNEL_BUILDER(Name("SlotsHandle").Device(DEVICE_CPU), SlotsHandleOp);
REGISTER_KERNEL_BUILDER(Name("PutIntoSlots").Device(DEVICE_CPU), PutIntoSlotsOp);
REGISTER_KERNEL_BUILDER(Name("EverySecond").Device(DEVICE_CPU), EverySecondOp);
REGISTER_KERNEL_BUILDER(Name("Doubled").Device(DEVICE_CPU), DoubledOp);
REGISTER_KERNEL_BUILDER(Name("Counted").Device(DEVICE_CPU), CountedOp);

#include "../prove/ranks.cc"
