// A recursive descent parser: each bracket of the text is a level, and mutual recursion carries it down.
// call: EvalSums {"text": {"texts": [{"text": "(", "times": 1000000}]}} => error
// dies: SIGSEGV
#include <string>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace calc {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::tstring;

class Parser {
 public:
  explicit Parser(const tstring& text) : at_(text.data()), end_(text.data() + text.size()) {}

  uint64_t Sum() {  // expect: op-recursion
    uint64_t total = Term();
    while (at_ < end_ && *at_ == '+') {
      ++at_;
      total += Term();
    }
    return total;
  }

 private:
  uint64_t Term() {  // or: op-recursion
    if (at_ < end_ && *at_ == '(') {
      ++at_;
      const uint64_t inner = Sum();
      if (at_ < end_ && *at_ == ')') ++at_;
      return inner;
    }
    uint64_t value = 0;
    while (at_ < end_ && *at_ >= '0' && *at_ <= '9') {
      value = value * 10 + static_cast<uint64_t>(*at_ - '0');
      ++at_;
    }
    return value;
  }

  const char* at_;
  const char* end_;
};

REGISTER_OP("EvalSums").Input("text: string").Output("value: uint64").SetShapeFn(
    tensorflow::shape_inference::UnchangedShape);

class EvalSumsOp : public OpKernel {
 public:
  explicit EvalSumsOp(OpKernelConstruction* ctx) : OpKernel(ctx) {}
  void Compute(OpKernelContext* ctx) override {
    const Tensor& text = ctx->input(0);
    Tensor* value = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, text.shape(), &value));
    auto in = text.flat<tstring>();
    auto out = value->flat<tensorflow::uint64>();
    for (int64_t i = 0; i < in.size(); ++i) {
      Parser parser(in(i));
      out(i) = parser.Sum();
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("EvalSums").Device(tensorflow::DEVICE_CPU), EvalSumsOp);

}  // namespace calc
