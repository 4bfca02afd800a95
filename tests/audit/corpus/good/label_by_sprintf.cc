// twin: op-string-overflow
// call: LabelOf {"names": ["a", ""]} => ["<a:0>", "<:1>"]
// call: LabelOf {"names": {"texts": [{"text": "n", "times": 5000}]}} => ["<nnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"]
// call: LabelOf {"names": {"zeros": [0], "dtype": "string"}} => []
#include <cstdio>
#include <string>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

using namespace tensorflow;

REGISTER_OP("LabelOf").Input("names: string").Output("label: string").SetShapeFn(shape_inference::UnchangedShape);

class LabelOfOp : public OpKernel {
 public:
  explicit LabelOfOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& name = context->input(0);
    Tensor* label = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, name.shape(), &label));
    for (int64_t i = 0; i < name.NumElements(); ++i) {
      const std::string text(name.flat<tstring>()(i));
      char buffer[32];
      snprintf(buffer, sizeof(buffer), "<%s:%lld>", text.c_str(), static_cast<long long>(i));
      label->flat<tstring>()(i) = buffer;
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("LabelOf").Device(DEVICE_CPU), LabelOfOp);
