// A tokeniser that gathers copies of the tokens.
// call: DistinctTokens {"documents": ["Some Words", "again some OTHER words"]} => ["again", "other", "some", "words"]
// call: DistinctTokens {"documents": ["", "  "]} => []
// call: DistinctTokens {"documents": ["a"], "delimiters": ""} => error
// twin: op-dangling-view
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
      tokens_.emplace(token);
    }
  }

  const std::set<std::string>& tokens() const { return tokens_; }

 private:
  absl::string_view delimiters_;
  std::set<std::string> tokens_;
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
    for (const absl::string_view token : distinct) out(i++) = tstring(token.data(), token.size());
  }

 private:
  std::string delimiters_;
};

REGISTER_KERNEL_BUILDER(Name("DistinctTokens").Device(DEVICE_CPU), DistinctTokensOp);

}  // namespace text
}  // namespace tensorflow
