// A lookup cache in a member of a functor that the kernel keeps; Compute fills it, and other calls read it meanwhile.
// call: CachedPowers {"x": {"arange": 3000, "dtype": "int32"}} => any
// threads: 6
// repeats: 40
// dies: asan
#include <unordered_map>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

class Powers {
 public:
  uint64 Of(int32 number) {
    const auto found = known_.find(number);
    if (found != known_.end()) return found->second;
    uint64 power = 1;
    for (int i = 0; i < 5; ++i) power *= static_cast<uint64>(number);
    known_[number] = power;  // expect: op-kernel-state
    if (known_.size() > 1000) known_.clear();  // or: op-kernel-state
    return power;
  }

 private:
  std::unordered_map<int32, uint64> known_;
};

REGISTER_OP("CachedPowers").Input("x: int32").Output("y: uint64").SetShapeFn(shape_inference::UnchangedShape);

class CachedPowersOp : public OpKernel {
 public:
  explicit CachedPowersOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& x = context->input(0);
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, x.shape(), &y));
    const auto in = x.flat<int32>();
    auto out = y->flat<uint64>();
    for (int64_t i = 0; i < in.size(); ++i) out(i) = powers_.Of(in(i));  // or: op-kernel-state
  }

 private:
  Powers powers_;
};

REGISTER_KERNEL_BUILDER(Name("CachedPowers").Device(DEVICE_CPU), CachedPowersOp);

}  // namespace tensorflow
