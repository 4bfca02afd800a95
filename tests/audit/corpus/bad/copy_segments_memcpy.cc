// Start and length of each segment are inputs; memcpy gets them as they are.
// call: CopySegments {"data": {"zeros": [64], "dtype": "uint8"}, "starts": [0], "lengths": [64000]} => error
// dies: asan
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
      if (start(i) < 0 || length(i) < 0) continue;
      out(i).resize(length(i));  // or: op-allocation-unchecked
      memcpy(out(i).mdata(), bytes + start(i), length(i));  // expect: op-offset-unchecked
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("CopySegments").Device(DEVICE_CPU), CopySegmentsOp);

}  // namespace segments
}  // namespace tensorflow
