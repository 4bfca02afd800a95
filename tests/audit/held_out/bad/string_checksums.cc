// Strings are decoded by the thread pool; a bad one leaves only the lambda.
// call: HexChecksums {"hex": ["0aff", "zz"], "strict": true} => error
// advice: the error is reported, but the kernel goes on and fills its output
#include <vector>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/platform/threadpool.h"

namespace tensorflow {
namespace {

int Digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

bool DecodeByte(const tstring& text, size_t at, uint32* byte) {
  const int high = Digit(text[at]), low = Digit(text[at + 1]);
  if (high < 0 || low < 0) return false;
  *byte = static_cast<uint32>(high * 16 + low);
  return true;
}

}  // namespace

REGISTER_OP("HexChecksums")
    .Input("hex: string")
    .Attr("strict: bool = true")
    .Output("sums: uint32")
    .SetShapeFn(shape_inference::UnchangedShape);

class HexChecksumsOp : public OpKernel {
 public:
  explicit HexChecksumsOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("strict", &strict_));
  }

  void Compute(OpKernelContext* ctx) override {
    const Tensor& hex_tensor = ctx->input(0);
    const auto hex = hex_tensor.flat<tstring>();
    Tensor* sums_tensor = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, hex_tensor.shape(), &sums_tensor));
    auto sums = sums_tensor->flat<uint32>();
    thread::ThreadPool* pool = ctx->device()->tensorflow_cpu_worker_threads()->workers;
    pool->ParallelFor(hex.size(), 1000, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const tstring& text = hex(i);
        uint32 sum = 1;
        for (size_t at = 0; at + 1 < text.size(); at += 2) {
          uint32 byte = 0;
          const bool decoded = DecodeByte(text, at, &byte);
          OP_REQUIRES(ctx, decoded || !strict_, errors::InvalidArgument("not a hexadecimal number: ", text));  // expect: op-requires-in-lambda
          sum = sum * 31 + byte;
        }
        sums(i) = sum;
      }
    });
    VLOG(1) << "the first sum is " << (sums.size() > 0 ? sums(0) : 0);
  }

 private:
  bool strict_ = true;
};

REGISTER_KERNEL_BUILDER(Name("HexChecksums").Device(DEVICE_CPU), HexChecksumsOp);

}  // namespace tensorflow
