// A decoder of chunks in a binary string, with a cursor class that never reads past the end.
// call: DecodeChunks {"contents": "\u0002ab\u0001c"} => [97, 99]
// call: DecodeChunks {"contents": "\u0009ab"} => error
// call: DecodeChunks {"contents": "\u0000"} => error
// call: DecodeChunks {"contents": ["a"]} => error
// twin: op-buffer-overrun, op-allocation-unchecked
#include <cstdint>
#include <cstring>
#include <vector>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"
#include "absl/strings/string_view.h"

namespace tensorflow {
namespace wav {

class Cursor {
 public:
  explicit Cursor(absl::string_view bytes) : bytes_(bytes) {}

  bool AtEnd() const { return offset_ >= bytes_.size(); }

  absl::Status ReadByte(uint8_t* byte) {
    if (AtEnd()) return errors::DataLoss("the data end at ", offset_);
    *byte = static_cast<uint8_t>(bytes_[offset_]);
    ++offset_;
    return absl::OkStatus();
  }

  absl::Status ReadChunk(size_t size, absl::string_view* chunk) {
    if (size > bytes_.size() - offset_) return errors::DataLoss("a chunk of ", size, " does not fit in at ", offset_);
    *chunk = bytes_.substr(offset_, size);
    offset_ += size;
    return absl::OkStatus();
  }

 private:
  absl::string_view bytes_;
  size_t offset_ = 0;
};

absl::Status FirstOfEachChunk(absl::string_view bytes, std::vector<int32>* first) {
  Cursor cursor(bytes);
  while (!cursor.AtEnd()) {
    uint8_t size = 0;
    TF_RETURN_IF_ERROR(cursor.ReadByte(&size));
    absl::string_view chunk;
    TF_RETURN_IF_ERROR(cursor.ReadChunk(size, &chunk));
    if (chunk.empty()) return errors::DataLoss("an empty chunk");
    first->push_back(chunk[0]);
  }
  return absl::OkStatus();
}

REGISTER_OP("DecodeChunks")
    .Input("contents: string")
    .Output("first: int32")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      shape_inference::ShapeHandle unused;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 0, &unused));
      c->set_output(0, c->Vector(c->UnknownDim()));
      return absl::OkStatus();
    });

class DecodeChunksOp : public OpKernel {
 public:
  explicit DecodeChunksOp(OpKernelConstruction* ctx) : OpKernel(ctx) {}

  void Compute(OpKernelContext* ctx) override {
    const Tensor& contents = ctx->input(0);
    OP_REQUIRES(ctx, TensorShapeUtils::IsScalar(contents.shape()),
                errors::InvalidArgument("contents must be scalar but got shape ", contents.shape().DebugString()));
    std::vector<int32> first;
    OP_REQUIRES_OK(ctx, FirstOfEachChunk(contents.scalar<tstring>()(), &first));
    Tensor* out = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, TensorShape({static_cast<int64_t>(first.size())}), &out));
    if (!first.empty()) std::memcpy(out->flat<int32>().data(), first.data(), first.size() * sizeof(first[0]));
  }
};

REGISTER_KERNEL_BUILDER(Name("DecodeChunks").Device(DEVICE_CPU), DecodeChunksOp);

}  // namespace wav
}  // namespace tensorflow
