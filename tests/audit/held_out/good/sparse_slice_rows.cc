// Rows of a sparse matrix, whose three parts are validated by one function, and whose range is clamped.
// call: SparseRowSums {"indices": {"value": [[0, 1], [1, 0]], "dtype": "int64"}, "values": [2.0, 3.0], "shape": {"value": [2, 2], "dtype": "int64"}, "first": 0, "count": 9} => [2.0, 3.0]
// call: SparseRowSums {"indices": {"value": [[0, 1], [7, 0]], "dtype": "int64"}, "values": [2.0, 3.0], "shape": {"value": [2, 2], "dtype": "int64"}, "first": 0, "count": 9} => error
// call: SparseRowSums {"indices": {"value": [[0, 1]], "dtype": "int64"}, "values": [2.0, 3.0], "shape": {"value": [2, 2], "dtype": "int64"}, "first": 0, "count": 9} => error
// call: SparseRowSums {"indices": {"value": [[0, 1]], "dtype": "int64"}, "values": [2.0], "shape": {"value": [9000000000000000000, 2], "dtype": "int64"}, "first": 0, "count": 9} => error
// twin: op-sizes-unrelated, op-index-unchecked, op-allocation-unchecked, op-element-unchecked
#include <algorithm>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"

namespace tensorflow {
namespace sparse {

REGISTER_OP("SparseRowSums")
    .Input("indices: int64")
    .Input("values: T")
    .Input("shape: int64")
    .Attr("T: {float, double}")
    .Attr("first: int")
    .Attr("count: int")
    .Output("sums: T")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      c->set_output(0, c->Vector(c->UnknownDim()));
      return absl::OkStatus();
    });

absl::Status ValidateSparse(const Tensor& indices, const Tensor& values, const Tensor& shape) {
  if (!TensorShapeUtils::IsMatrix(indices.shape())) return errors::InvalidArgument("indices must be a matrix");
  if (!TensorShapeUtils::IsVector(values.shape())) return errors::InvalidArgument("values must be a vector");
  if (!TensorShapeUtils::IsVector(shape.shape())) return errors::InvalidArgument("shape must be a vector");
  const int64_t nnz = indices.dim_size(0);
  const int64_t rank = indices.dim_size(1);
  if (nnz != values.dim_size(0)) return errors::InvalidArgument(nnz, " indices, ", values.dim_size(0), " values");
  if (rank != 2 || shape.dim_size(0) != rank) return errors::InvalidArgument("only matrices are supported");
  const auto size = shape.vec<int64_t>();
  for (int64_t d = 0; d < rank; ++d) {
    if (size(d) < 0 || size(d) > (1 << 24)) return errors::InvalidArgument("dimension ", d, " is ", size(d));
  }
  const auto index = indices.matrix<int64_t>();
  for (int64_t i = 0; i < nnz; ++i) {
    for (int64_t d = 0; d < rank; ++d) {
      if (index(i, d) < 0 || index(i, d) >= size(d)) {
        return errors::InvalidArgument("indices[", i, ", ", d, "] = ", index(i, d), " is out of bounds");
      }
    }
  }
  return absl::OkStatus();
}

template <typename T>
class SparseRowSumsOp : public OpKernel {
 public:
  explicit SparseRowSumsOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("first", &first_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("count", &count_));
    OP_REQUIRES(ctx, first_ >= 0 && count_ >= 0, errors::InvalidArgument("the range must not be negative"));
  }

  void Compute(OpKernelContext* ctx) override {
    const Tensor *indices_t, *values_t, *shape_t;
    OP_REQUIRES_OK(ctx, ctx->input("indices", &indices_t));
    OP_REQUIRES_OK(ctx, ctx->input("values", &values_t));
    OP_REQUIRES_OK(ctx, ctx->input("shape", &shape_t));
    OP_REQUIRES_OK(ctx, ValidateSparse(*indices_t, *values_t, *shape_t));

    const int64_t rows = shape_t->vec<int64_t>()(0);
    const int64_t begin = std::min(first_, rows);
    const int64_t length = std::min(count_, rows - begin);
    Tensor* sums_t = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, TensorShape({length}), &sums_t));
    auto sums = sums_t->vec<T>();
    sums.setZero();
    const auto indices = indices_t->matrix<int64_t>();
    const auto values = values_t->vec<T>();
    for (int64_t i = 0; i < indices.dimension(0); ++i) {
      const int64_t row = indices(i, 0) - begin;
      if (row < 0 || row >= length) continue;
      sums(row) += values(i);
    }
  }

 private:
  int64_t first_ = 0;
  int64_t count_ = 0;
};

REGISTER_KERNEL_BUILDER(Name("SparseRowSums").Device(DEVICE_CPU).TypeConstraint<float>("T"), SparseRowSumsOp<float>);
REGISTER_KERNEL_BUILDER(Name("SparseRowSums").Device(DEVICE_CPU).TypeConstraint<double>("T"), SparseRowSumsOp<double>);

}  // namespace sparse
}  // namespace tensorflow
