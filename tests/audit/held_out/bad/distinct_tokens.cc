// A tokeniser that gathers views of the tokens; the lower-case copy that they show is gone after each document.
// call: DistinctTokens {"documents": ["Some Words With More Than A Few Letters Here", "again some OTHER words that are rather long"]} => any
// dies: asan
#include <set>
#include <string>
#include <vector>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace tensorflow {
namespace text {

REGISTER_OP("DistinctTokens")
    .Input("documents: string")
    .Attr("delimiters: string = ' '")
    .Output("tokens: string")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      c->set_output(0, c->Vector(c->UnknownDim()));
      return absl::OkStatus();
    });

class TokenCollector {
 public:
  explicit TokenCollector(absl::string_view delimiters) : delimiters_(delimiters) {}

  void Add(absl::string_view document) {
    const std::string lowered = absl::AsciiStrToLower(document);
    for (absl::string_view token : absl::StrSplit(lowered, absl::ByAnyChar(delimiters_), absl::SkipEmpty())) {
      tokens_.insert(token);  // expect: op-dangling-view
    }
  }

  const std::set<absl::string_view>& tokens() const { return tokens_; }

 private:
  absl::string_view delimiters_;
  std::set<absl::string_view> tokens_;
};

class DistinctTokensOp : public OpKernel {
 public:
  explicit DistinctTokensOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("delimiters", &delimiters_));
    OP_REQUIRES(ctx, !delimiters_.empty(), errors::InvalidArgument("delimiters must not be empty"));
  }

  void Compute(OpKernelContext* ctx) override {
    const auto documents = ctx->input(0).flat<tstring>();
    TokenCollector collector(delimiters_);
    for (int64_t d = 0; d < documents.size(); ++d) collector.Add(documents(d));

    const auto& distinct = collector.tokens();
    Tensor* tokens = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, TensorShape({static_cast<int64_t>(distinct.size())}), &tokens));
    auto out = tokens->vec<tstring>();
    int64_t i = 0;
    for (const absl::string_view token : distinct) out(i++) = tstring(token.data(), token.size());  // or: op-dangling-view
  }

 private:
  std::string delimiters_;
};

REGISTER_KERNEL_BUILDER(Name("DistinctTokens").Device(DEVICE_CPU), DistinctTokensOp);

}  // namespace text
}  // namespace tensorflow
