// Tokens are looked up in a vocabulary with at(), which throws for a word that is not in it.
// call: VocabIds {"tokens": ["a", "zebra"], "vocabulary": ["a", "b"]} => any
// dies: SIGSEGV
#include <string>
#include <unordered_map>
#include <vector>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"

namespace tensorflow {
namespace {

class Vocabulary {
 public:
  void Load(const std::vector<std::string>& words) {
    ids_.clear();
    for (const std::string& word : words) ids_.emplace(word, static_cast<int64_t>(ids_.size()));
  }

  int64_t IdOf(const std::string& word) const { return ids_.at(word); }  // expect: op-exception

 private:
  std::unordered_map<std::string, int64_t> ids_;
};

}  // namespace

REGISTER_OP("VocabIds")
    .Input("tokens: string")
    .Attr("vocabulary: list(string) >= 1")
    .Attr("lower_case: bool = false")
    .Output("ids: int64")
    .SetShapeFn(shape_inference::UnchangedShape);

class VocabIdsOp : public OpKernel {
 public:
  explicit VocabIdsOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    std::vector<std::string> words;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("vocabulary", &words));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("lower_case", &lower_case_));
    vocabulary_.Load(words);
  }

  void Compute(OpKernelContext* ctx) override {
    const Tensor& tokens = ctx->input(0);
    Tensor* ids = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, tokens.shape(), &ids));
    const auto in = tokens.flat<tstring>();
    auto out = ids->flat<int64_t>();
    std::string word;
    for (int64_t i = 0; i < in.size(); ++i) {
      word.assign(in(i).data(), in(i).size());
      if (lower_case_) {
        for (char& c : word) {
          if (c >= 'A' && c <= 'Z') c += 'a' - 'A';
        }
      }
      out(i) = vocabulary_.IdOf(word);  // or: op-exception
    }
  }

 private:
  Vocabulary vocabulary_;
  bool lower_case_ = false;
};

REGISTER_KERNEL_BUILDER(Name("VocabIds").Device(DEVICE_CPU), VocabIdsOp);

}  // namespace tensorflow
