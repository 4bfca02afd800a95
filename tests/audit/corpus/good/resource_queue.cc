// A resource kernel whose caller compares the slot with the size, which never changes.
// twin: op-index-unchecked, op-kernel-state, op-null-input
// call: RingHandle {"capacity": 64} => any
// call: RingPush {"handle": {"result": 0}, "slot": 0, "value": 5.0} => 5.0
// call: RingPush {"handle": {"result": 0}, "slot": 900000000, "value": 1.0} => error
// call: RingPush {"handle": {"result": 0}, "slot": -1, "value": 1.0} => error
// call: RingPush {"handle": {"result": 0}, "slot": [], "value": 1.0} => error
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_op_kernel.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace ring {

using namespace tensorflow;

class Ring : public ResourceBase {
 public:
  explicit Ring(int64_t capacity) : slots_(capacity, 0.0f) {}

  std::string DebugString() const override { return strings::StrCat("Ring of ", slots_.size()); }

  float Put(int64_t slot, float value) {
    mutex_lock lock(mu_);
    slots_[slot] = value;
    return slots_[0];
  }

  int64_t size() const { return static_cast<int64_t>(slots_.size()); }

 private:
  mutex mu_;
  std::vector<float> slots_;
};

REGISTER_OP("RingHandle")
    .Output("handle: resource")
    .Attr("capacity: int >= 1")
    .Attr("container: string = ''")
    .Attr("shared_name: string = ''")
    .SetIsStateful()
    .SetShapeFn(shape_inference::ScalarShape);
REGISTER_OP("RingPush")
    .Input("handle: resource")
    .Input("slot: int64")
    .Input("value: float")
    .Output("first: float")
    .SetIsStateful()
    .SetShapeFn(shape_inference::ScalarShape);

class RingHandleOp : public ResourceOpKernel<Ring> {
 public:
  explicit RingHandleOp(OpKernelConstruction* context) : ResourceOpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("capacity", &capacity_));
    OP_REQUIRES(context, capacity_ <= 1 << 20, errors::InvalidArgument("capacity is too large"));
  }

 private:
  Status CreateResource(Ring** ring) override {
    *ring = new Ring(capacity_);
    return OkStatus();
  }

  int64_t capacity_;
};

class RingPushOp : public OpKernel {
 public:
  explicit RingPushOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    core::RefCountPtr<Ring> ring;
    OP_REQUIRES_OK(context, LookupResource(context, HandleFromInput(context, 0), &ring));
    const Tensor& slot = context->input(1);
    const Tensor& value = context->input(2);
    OP_REQUIRES(context, slot.NumElements() == 1 && value.NumElements() == 1,
                errors::InvalidArgument("slot and value must have one element each"));
    const int64_t at = slot.flat<int64_t>()(0);
    OP_REQUIRES(context, at >= 0 && at < ring->size(), errors::OutOfRange("no slot ", at));
    Tensor* first = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &first));
    first->scalar<float>()() = ring->Put(at, value.flat<float>()(0));
  }
};

REGISTER_KERNEL_BUILDER(Name("RingHandle").Device(DEVICE_CPU), RingHandleOp);
REGISTER_KERNEL_BUILDER(Name("RingPush").Device(DEVICE_CPU), RingPushOp);

}  // namespace ring
