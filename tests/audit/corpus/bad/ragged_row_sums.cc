// Row splits as in a ragged tensor: neither their order nor their end is checked.
// call: RaggedRowSums {"values": [1.0, 2.0], "splits": {"value": [0, 400000000], "dtype": "int64"}} => error
// dies: SIGSEGV
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

REGISTER_OP("RaggedRowSums")
    .Input("values: T")
    .Input("splits: Tsplits")
    .Output("sums: T")
    .Attr("T: {float, double}")
    .Attr("Tsplits: {int32, int64} = DT_INT64")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      shape_inference::ShapeHandle splits;
      shape_inference::DimensionHandle rows;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 1, &splits));
      TF_RETURN_IF_ERROR(c->Subtract(c->Dim(splits, 0), 1, &rows));
      c->set_output(0, c->Vector(rows));
      return absl::OkStatus();
    });

template <typename T, typename SplitType>
class RaggedRowSumsOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    const Tensor& values_in = ctx->input(0);
    const Tensor& splits_in = ctx->input(1);
    OP_REQUIRES(ctx, TensorShapeUtils::IsVector(values_in.shape()), errors::InvalidArgument("values must be a vector"));
    OP_REQUIRES(ctx, TensorShapeUtils::IsVector(splits_in.shape()) && splits_in.NumElements() >= 1,
                errors::InvalidArgument("splits must be a vector of at least one element"));
    const auto values = values_in.vec<T>();
    const auto splits = splits_in.vec<SplitType>();
    const int64_t rows = splits_in.NumElements() - 1;
    Tensor* sums = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, TensorShape({rows}), &sums));
    for (int64_t row = 0; row < rows; ++row) {
      T sum(0);
      for (SplitType i = splits(row); i < splits(row + 1); ++i) {  // or: op-offset-unchecked
        sum += values(i);  // expect: op-offset-unchecked
      }
      sums->vec<T>()(row) = sum;
    }
  }
};

#define REGISTER_ALL(T)                                                                                      \
  REGISTER_KERNEL_BUILDER(                                                                                   \
      Name("RaggedRowSums").Device(DEVICE_CPU).TypeConstraint<T>("T").TypeConstraint<int32>("Tsplits"),      \
      RaggedRowSumsOp<T, int32>);                                                                            \
  REGISTER_KERNEL_BUILDER(                                                                                   \
      Name("RaggedRowSums").Device(DEVICE_CPU).TypeConstraint<T>("T").TypeConstraint<int64_t>("Tsplits"),    \
      RaggedRowSumsOp<T, int64_t>);
REGISTER_ALL(float)
REGISTER_ALL(double)
#undef REGISTER_ALL

}  // namespace tensorflow
