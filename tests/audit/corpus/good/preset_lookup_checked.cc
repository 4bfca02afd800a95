// twin: op-null-input
// call: PresetScale {"x": [1.0], "preset": "high"} => [2.0]
// call: PresetScale {"x": [1.0], "preset": "medium"} => error
// call: PresetScale {"x": {"zeros": [0]}, "preset": "low"} => []
#include <cstring>
#include <string>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {
namespace {

struct Preset {
  const char* name;
  float factor;
};

constexpr Preset kPresets[] = {{"low", 0.5f}, {"high", 2.0f}};

const Preset* FindPreset(const std::string& name) {
  for (const Preset& preset : kPresets) {
    if (name == preset.name) return &preset;
  }
  return nullptr;
}

REGISTER_OP("PresetScale")
    .Input("x: float")
    .Attr("preset: string = 'low'")
    .Output("y: float")
    .SetShapeFn(shape_inference::UnchangedShape);

class PresetScaleOp : public OpKernel {
 public:
  explicit PresetScaleOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("preset", &name_));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& x = context->input(0);
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, x.shape(), &y));
    const Preset* preset = FindPreset(name_);
    OP_REQUIRES(context, preset != nullptr, errors::NotFound("no preset named ", name_));
    y->flat<float>() = x.flat<float>() * preset->factor;
  }

 private:
  std::string name_;
};

REGISTER_KERNEL_BUILDER(Name("PresetScale").Device(DEVICE_CPU), PresetScaleOp);

}  // namespace
}  // namespace tensorflow
