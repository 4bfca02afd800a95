// N-grams of ragged rows: a class reads the splits after a check, in types chosen by a macro.
// call: RaggedNgrams {"data": ["a", "b", "c"], "splits": {"value": [0, 2, 3], "dtype": "int64"}, "width": 2} => [["a b"], [0, 1, 1]]
// call: RaggedNgrams {"data": ["a", "b", "c"], "splits": {"value": [0, 9], "dtype": "int64"}, "width": 2} => error
// call: RaggedNgrams {"data": ["a", "b", "c"], "splits": {"value": [0, 3, 2, 3], "dtype": "int32"}, "width": 1} => error
// call: RaggedNgrams {"data": [], "splits": {"zeros": [0], "dtype": "int32"}, "width": 1} => any
// twin: op-offset-unchecked, op-attr-unchecked
#include <algorithm>
#include <string>
#include <vector>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"
#include "absl/strings/str_cat.h"

namespace tensorflow {
namespace text {

REGISTER_OP("RaggedNgrams")
    .Attr("width: int >= 1")
    .Attr("separator: string = ' '")
    .Attr("Tsplits: {int32, int64} = DT_INT64")
    .Input("data: string")
    .Input("splits: Tsplits")
    .Output("ngrams: string")
    .Output("ngram_splits: Tsplits")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      c->set_output(0, c->Vector(c->UnknownDim()));
      shape_inference::ShapeHandle splits;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 1, &splits));
      c->set_output(1, splits);
      return absl::OkStatus();
    });

template <typename Tsplits>
class RaggedNgramsOp : public OpKernel {
 public:
  explicit RaggedNgramsOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("width", &width_));
    OP_REQUIRES_OK(context, context->GetAttr("separator", &separator_));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor* data;
    OP_REQUIRES_OK(context, context->input("data", &data));
    OP_REQUIRES(context, TensorShapeUtils::IsVector(data->shape()), errors::InvalidArgument("data must be a vector"));
    const auto& input_data = data->flat<tstring>().data();
    const Tensor* splits;
    OP_REQUIRES_OK(context, context->input("splits", &splits));
    OP_REQUIRES(context, splits->dims() == 1, errors::InvalidArgument("splits must be a vector"));
    const auto& splits_vec = splits->flat<Tsplits>();

    // Validate that the splits are valid indices into data, only if there are splits specified.
    const int64_t input_data_size = data->flat<tstring>().size();
    const int splits_vec_size = splits_vec.size();
    if (splits_vec_size > 0) {
      int64_t prev_split = splits_vec(0);
      OP_REQUIRES(context, prev_split == 0, errors::InvalidArgument("First split value must be 0, got ", prev_split));
      for (int i = 1; i < splits_vec_size; ++i) {
        bool valid_splits = splits_vec(i) >= prev_split;
        valid_splits = valid_splits && (splits_vec(i) <= input_data_size);
        OP_REQUIRES(context, valid_splits, errors::InvalidArgument("Invalid split value ", splits_vec(i)));
        prev_split = splits_vec(i);
      }
      OP_REQUIRES(context, prev_split == input_data_size, errors::InvalidArgument("Last split value must be data size"));
    }

    const int num_batch_items = splits_vec.size() - 1;
    Tensor* ngrams_splits;
    OP_REQUIRES_OK(context, context->allocate_output(1, splits->shape(), &ngrams_splits));
    auto ngrams_splits_data = ngrams_splits->flat<Tsplits>().data();
    if (data->NumElements() == 0 || splits_vec.size() == 0) {
      Tensor* empty;
      OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({0}), &empty));
      for (int i = 0; i <= num_batch_items; ++i) ngrams_splits_data[i] = 0;
      return;
    }

    ngrams_splits_data[0] = 0;
    for (int i = 1; i <= num_batch_items; ++i) {
      const int length = splits_vec(i) - splits_vec(i - 1);
      ngrams_splits_data[i] = ngrams_splits_data[i - 1] + std::max<int64_t>(0, length - width_ + 1);
    }
    Tensor* ngrams;
    OP_REQUIRES_OK(context, context->allocate_output(
                                0, TensorShape({static_cast<int64_t>(ngrams_splits_data[num_batch_items])}), &ngrams));
    auto ngrams_data = ngrams->flat<tstring>().data();
    for (int i = 0; i < num_batch_items; ++i) {
      const tstring* row = &input_data[splits_vec(i)];
      const int64_t count = ngrams_splits_data[i + 1] - ngrams_splits_data[i];
      for (int64_t n = 0; n < count; ++n) CreateNgram(row + n, &ngrams_data[ngrams_splits_data[i] + n]);
    }
  }

 private:
  void CreateNgram(const tstring* tokens, tstring* ngram) const {
    for (int64_t k = 0; k < width_; ++k) {
      if (k > 0) ngram->append(separator_);
      ngram->append(tokens[k]);
    }
  }

  int64_t width_ = 1;
  std::string separator_;
};

#define REGISTER_NGRAMS(Tsplits) \
  REGISTER_KERNEL_BUILDER(Name("RaggedNgrams").Device(DEVICE_CPU).TypeConstraint<Tsplits>("Tsplits"), RaggedNgramsOp<Tsplits>)
REGISTER_NGRAMS(int32);
REGISTER_NGRAMS(int64_t);

}  // namespace text
}  // namespace tensorflow
