// twin: op-offset-unchecked
// call: CutTokens {"text": "ab", "starts": [0, 1, 2], "ends": [2, 2, 2]} => [3105, 98, 0]
// call: CutTokens {"text": "hello world", "starts": [900000000], "ends": [5]} => error
// call: CutTokens {"text": "hello world", "starts": [-1], "ends": [5]} => error
// call: CutTokens {"text": "hello world", "starts": [5], "ends": [900]} => error
// call: CutTokens {"text": "", "starts": {"zeros": [0], "dtype": "int32"}, "ends": {"zeros": [0], "dtype": "int32"}} => []
#include <string>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

REGISTER_OP("CutTokens")
    .Input("text: string")
    .Input("starts: int32")
    .Input("ends: int32")
    .Output("hashes: uint64")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      shape_inference::ShapeHandle unused;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 0, &unused));
      c->set_output(0, c->input(1));
      return OkStatus();
    });

class CutTokensOp : public OpKernel {
 public:
  explicit CutTokensOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& text_tensor = context->input(0);
    OP_REQUIRES(context, text_tensor.dims() == 0, errors::InvalidArgument("text must be a scalar"));
    OP_REQUIRES(context, context->input(1).shape() == context->input(2).shape(), errors::InvalidArgument("shapes differ"));
    const tstring& text = text_tensor.scalar<tstring>()();
    const auto starts = context->input(1).flat<int32>();
    const auto ends = context->input(2).flat<int32>();
    Tensor* hashes = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, context->input(1).shape(), &hashes));
    auto out = hashes->flat<uint64>();
    const int64_t size = static_cast<int64_t>(text.size());
    for (int64_t t = 0; t < starts.size(); ++t) {
      OP_REQUIRES(context, 0 <= starts(t) && starts(t) <= ends(t) && ends(t) <= size, errors::OutOfRange("token ", t));
      uint64 hash = 0;
      for (int64_t i = starts(t); i < ends(t); ++i) {
        hash = hash * 31 + static_cast<uint64>(text.data()[i]);
      }
      out(t) = hash;
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("CutTokens").Device(DEVICE_CPU), CutTokensOp);

}  // namespace tensorflow
