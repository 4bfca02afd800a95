// twin: op-offset-unchecked, op-allocation-unchecked
// call: CopySegments {"data": {"value": [97, 98, 99], "dtype": "uint8"}, "starts": [0, 2, 3], "lengths": [2, 1, 0]} => ["ab", "c", ""]
// call: CopySegments {"data": {"zeros": [64], "dtype": "uint8"}, "starts": [0], "lengths": [64000]} => error
// call: CopySegments {"data": {"zeros": [64], "dtype": "uint8"}, "starts": [2147483647], "lengths": [2147483647]} => error
// call: CopySegments {"data": {"zeros": [64], "dtype": "uint8"}, "starts": [-1], "lengths": [1]} => error
// call: CopySegments {"data": {"zeros": [0], "dtype": "uint8"}, "starts": [0], "lengths": [0]} => [""]
// call: CopySegments {"data": {"zeros": [64], "dtype": "uint8"}, "starts": [1, 2], "lengths": [1]} => error
#include <cstring>
#include <string>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {
namespace segments {

REGISTER_OP("CopySegments")
    .Input("data: uint8")
    .Input("starts: int32")
    .Input("lengths: int32")
    .Output("pieces: string")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      c->set_output(0, c->input(1));
      return OkStatus();
    });

class CopySegmentsOp : public OpKernel {
 public:
  explicit CopySegmentsOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& data = context->input(0);
    const Tensor& starts = context->input(1);
    const Tensor& lengths = context->input(2);
    OP_REQUIRES(context, starts.shape() == lengths.shape(),
                errors::InvalidArgument("starts and lengths must have the same shape"));
    Tensor* pieces = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, starts.shape(), &pieces));
    const uint8* bytes = data.flat<uint8>().data();
    const auto start = starts.flat<int32>();
    const auto length = lengths.flat<int32>();
    auto out = pieces->flat<tstring>();
    for (int64_t i = 0; i < start.size(); ++i) {
      const int64_t first = start(i), count = length(i);
      OP_REQUIRES(context, first >= 0 && count >= 0 && first + count <= data.NumElements(),
                  errors::OutOfRange("segment ", i, " is not within data"));
      out(i).resize(count);
      if (count > 0) memcpy(out(i).mdata(), bytes + first, count);
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("CopySegments").Device(DEVICE_CPU), CopySegmentsOp);

}  // namespace segments
}  // namespace tensorflow
