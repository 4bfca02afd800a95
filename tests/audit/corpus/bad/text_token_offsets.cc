// Tokens of a text by start and end: the end is limited to the text's size, the start is not.
// call: CutTokens {"text": "hello world", "starts": [900000000], "ends": [5]} => error
// dies: SIGSEGV
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
      const int64_t end = std::min<int64_t>(ends(t), size);
      uint64 hash = static_cast<uint64>(text.data()[starts(t)]);  // expect: op-offset-unchecked
      for (int64_t i = int64_t{starts(t)} + 1; i < end; ++i) {
        hash = hash * 31 + static_cast<uint64>(text.data()[i]);  // or: op-offset-unchecked
      }
      out(t) = hash;
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("CutTokens").Device(DEVICE_CPU), CutTokensOp);

}  // namespace tensorflow
