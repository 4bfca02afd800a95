// Overloads of one name, a variadic template and a std:: function of the same name: no recursion.
// twin: op-recursion
// call: ClampSum {"x": [1.0, 9.0, -3.0], "limit": 4.0} => 5.0
// call: ClampSum {"x": {"zeros": [0]}, "limit": 4.0} => 0.0
// call: ClampSum {"x": [1.0], "limit": -1.0} => error
#include <algorithm>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace clamped {

using namespace tensorflow;

inline float Limit(float value, float low, float high) { return std::min(std::max(value, low), high); }
inline float Limit(float value, float high) { return Limit(value, 0.0f, high); }

inline float min(float a, float b) { return std::min(a, b); }

inline double Add() { return 0.0; }
template <typename First, typename... Rest>
double Add(First first, Rest... rest) {
  return first + Add(rest...);
}

REGISTER_OP("ClampSum").Input("x: float").Attr("limit: float").Output("sum: float").SetShapeFn(shape_inference::ScalarShape);

class ClampSumOp : public OpKernel {
 public:
  explicit ClampSumOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("limit", &limit_));
    OP_REQUIRES(context, limit_ >= 0, errors::InvalidArgument("limit must not be negative"));
  }

  void Compute(OpKernelContext* context) override {
    const auto x = context->input(0).flat<float>();
    double sum = 0;
    for (int64_t i = 0; i < x.size(); ++i) sum = Add(sum, Limit(x(i), limit_), 0.0f);
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &output));
    output->scalar<float>()() = min(static_cast<float>(sum), 1e30f);
  }

 private:
  float limit_;
};

REGISTER_KERNEL_BUILDER(Name("ClampSum").Device(DEVICE_CPU), ClampSumOp);

}  // namespace clamped
