// A decoder of grey images that compares the header with the bytes that follow.
// call: DecodeGreyPnm {"contents": "P5 100 100 255\nabc"} => error
// call: DecodeGreyPnm {"contents": "P5 2 1 255\nab"} => [[97, 98]]
// call: DecodeGreyPnm {"contents": "P5 2 99999999999999999999 255\nab"} => error
// call: DecodeGreyPnm {"contents": ""} => error
// twin: op-buffer-overrun, op-allocation-unchecked
#include <cstring>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"
#include "absl/strings/string_view.h"

namespace tensorflow {
namespace {

REGISTER_OP("DecodeGreyPnm")
    .Input("contents: string")
    .Output("image: uint8")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      c->set_output(0, c->Matrix(c->UnknownDim(), c->UnknownDim()));
      return absl::OkStatus();
    });

struct PnmHeader {
  int64_t width = 0;
  int64_t height = 0;
  int64_t maximum = 0;
};

bool ReadNumber(absl::string_view* in, int64_t* number) {
  while (!in->empty() && (in->front() == ' ' || in->front() == '\n')) in->remove_prefix(1);
  if (in->empty() || in->front() < '0' || in->front() > '9') return false;
  *number = 0;
  while (!in->empty() && in->front() >= '0' && in->front() <= '9') {
    if (*number > 100000) return false;
    *number = *number * 10 + (in->front() - '0');
    in->remove_prefix(1);
  }
  return true;
}

absl::Status ParseHeader(absl::string_view* in, PnmHeader* header) {
  if (in->size() < 2 || in->substr(0, 2) != "P5") return errors::InvalidArgument("not a binary PGM image");
  in->remove_prefix(2);
  if (!ReadNumber(in, &header->width) || !ReadNumber(in, &header->height) || !ReadNumber(in, &header->maximum)) {
    return errors::InvalidArgument("bad header");
  }
  if (header->width < 1 || header->width > 16384 || header->height < 1 || header->height > 16384) {
    return errors::InvalidArgument("the size is not in [1, 16384]");
  }
  if (header->maximum != 255) return errors::Unimplemented("only 8 bits are supported");
  if (in->empty()) return errors::InvalidArgument("the pixels are missing");
  in->remove_prefix(1);
  return absl::OkStatus();
}

class DecodeGreyPnmOp : public OpKernel {
 public:
  explicit DecodeGreyPnmOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& contents = context->input(0);
    OP_REQUIRES(context, TensorShapeUtils::IsScalar(contents.shape()), errors::InvalidArgument("contents: a scalar"));
    const tstring& bytes = contents.scalar<tstring>()();
    absl::string_view rest(bytes.data(), bytes.size());
    PnmHeader header;
    OP_REQUIRES_OK(context, ParseHeader(&rest, &header));
    const size_t needed = static_cast<size_t>(header.width) * header.height;
    OP_REQUIRES(context, rest.size() >= needed, errors::DataLoss("only ", rest.size(), " of ", needed, " pixels"));
    Tensor* image = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({header.height, header.width}), &image));
    std::memcpy(image->flat<uint8>().data(), rest.data(), needed);
  }
};

REGISTER_KERNEL_BUILDER(Name("DecodeGreyPnm").Device(DEVICE_CPU), DecodeGreyPnmOp);

}  // namespace
}  // namespace tensorflow
