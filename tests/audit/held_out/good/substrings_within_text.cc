// Substrings between byte offsets, which the reader compares with the text.
// call: SubstringsByOffsets {"text": "short", "starts": {"value": [2], "dtype": "int64"}, "limits": {"value": [4000], "dtype": "int64"}} => error
// call: SubstringsByOffsets {"text": "short", "starts": {"value": [2, 5], "dtype": "int64"}, "limits": {"value": [4, 5], "dtype": "int64"}} => ["or", ""]
// call: SubstringsByOffsets {"text": "short", "starts": {"value": [-2], "dtype": "int64"}, "limits": {"value": [4], "dtype": "int64"}} => error
// call: SubstringsByOffsets {"text": "short", "starts": {"value": [3], "dtype": "int64"}, "limits": {"value": [2], "dtype": "int64"}} => error
// twin: op-offset-unchecked
#include <string>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"

namespace tensorflow {
namespace text {

REGISTER_OP("SubstringsByOffsets")
    .Input("text: string")
    .Input("starts: int64")
    .Input("limits: int64")
    .Output("pieces: string")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      shape_inference::ShapeHandle pieces;
      TF_RETURN_IF_ERROR(c->Merge(c->input(1), c->input(2), &pieces));
      c->set_output(0, pieces);
      return absl::OkStatus();
    });

class PieceReader {
 public:
  explicit PieceReader(const tstring& text) : begin_(text.data()), size_(text.size()) {}

  bool Read(int64_t start, int64_t limit, tstring* piece) const {
    if (start < 0 || limit < start || limit > static_cast<int64_t>(size_)) return false;
    piece->assign(begin_ + start, limit - start);
    return true;
  }

  size_t size() const { return size_; }

 private:
  const char* begin_;
  size_t size_;
};

class SubstringsByOffsetsOp : public OpKernel {
 public:
  explicit SubstringsByOffsetsOp(OpKernelConstruction* ctx) : OpKernel(ctx) {}

  void Compute(OpKernelContext* ctx) override {
    const Tensor& text = ctx->input(0);
    const Tensor& starts = ctx->input(1);
    const Tensor& limits = ctx->input(2);
    OP_REQUIRES(ctx, TensorShapeUtils::IsScalar(text.shape()), errors::InvalidArgument("text must be a scalar"));
    OP_REQUIRES(ctx, starts.dims() == 1 && starts.IsSameSize(limits),
                errors::InvalidArgument("starts and limits must be vectors of one size"));
    Tensor* pieces = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, starts.shape(), &pieces));
    const PieceReader reader(text.scalar<tstring>()());
    const auto from = starts.vec<int64_t>(), to = limits.vec<int64_t>();
    auto out = pieces->vec<tstring>();
    for (int64_t i = 0; i < from.size(); ++i) {
      OP_REQUIRES(ctx, reader.Read(from(i), to(i), &out(i)),
                  errors::OutOfRange("[", from(i), ", ", to(i), ") is not in a text of ", reader.size()));
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("SubstringsByOffsets").Device(DEVICE_CPU), SubstringsByOffsetsOp);

}  // namespace text
}  // namespace tensorflow
