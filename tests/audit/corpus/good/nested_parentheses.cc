// twin: op-recursion
// The parser keeps the open sums in a vector of its own.
// call: EvalSums {"text": ["1+(2+3)", "", "((7))", "+4", ")1", "2+()"]} => [6, 0, 7, 4, 0, 2]
// call: EvalSums {"text": {"texts": [{"text": "(", "times": 1000000}, {"text": "1+", "times": 1000}]}} => [0, 1000]
// call: EvalSums {"text": "99999999999999999999999999"} => any
// call: EvalSums {"text": {"zeros": [0], "dtype": "string"}} => []
#include <string>
#include <vector>

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

  uint64_t Sum() {
    std::vector<uint64_t> open(1, 0);
    for (; at_ < end_; ++at_) {
      if (*at_ == '(') {
        open.push_back(0);
      } else if (*at_ == ')') {
        if (open.size() == 1) break;
        Close(&open);
      } else if (*at_ >= '0' && *at_ <= '9') {
        open.back() += Number();
      } else if (*at_ != '+') {
        break;
      }
    }
    while (open.size() > 1) Close(&open);
    return open.back();
  }

 private:
  static void Close(std::vector<uint64_t>* open) {
    const uint64_t inner = open->back();
    open->pop_back();
    open->back() += inner;
  }

  // Leaves at_ on the last digit.
  uint64_t Number() {
    uint64_t value = static_cast<uint64_t>(*at_ - '0');
    while (at_ + 1 < end_ && at_[1] >= '0' && at_[1] <= '9') {
      ++at_;
      value = value * 10 + static_cast<uint64_t>(*at_ - '0');
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
