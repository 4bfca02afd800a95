// Coordinates of a sparse tensor scattered by a helper of a header; only the number of columns is checked.
// call: DenseFromCoo {"indices": {"value": [[0, 300000000]], "dtype": "int64"}, "values": [1.0], "rows": 2, "columns": 2} => error
// dies: SIGSEGV
#include "sparse_to_dense_helper.h"

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {
namespace sparse_kernels {

REGISTER_OP("DenseFromCoo")
    .Input("indices: int64")
    .Input("values: T")
    .Output("dense: T")
    .Attr("T: {float, double, int32}")
    .Attr("rows: int >= 1")
    .Attr("columns: int >= 1")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      shape_inference::ShapeHandle indices;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &indices));
      int64_t rows, columns;
      TF_RETURN_IF_ERROR(c->GetAttr("rows", &rows));
      TF_RETURN_IF_ERROR(c->GetAttr("columns", &columns));
      c->set_output(0, c->Matrix(rows, columns));
      return OkStatus();
    });

template <typename T>
class DenseFromCooOp : public OpKernel {
 public:
  explicit DenseFromCooOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("rows", &rows_));
    OP_REQUIRES_OK(context, context->GetAttr("columns", &columns_));
    OP_REQUIRES(context, rows_ <= 4096 && columns_ <= 4096, errors::InvalidArgument("at most 4096 rows and columns"));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& indices = context->input(0);
    const Tensor& values = context->input(1);
    OP_REQUIRES(context, TensorShapeUtils::IsMatrix(indices.shape()) && indices.dim_size(1) == 2,
                errors::InvalidArgument("indices must be [n, 2]"));
    OP_REQUIRES(context, TensorShapeUtils::IsVector(values.shape()) && values.dim_size(0) == indices.dim_size(0),
                errors::InvalidArgument("there must be a value for each index"));
    Tensor* dense = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({rows_, columns_}), &dense));
    Scatter<T>(indices.matrix<int64_t>(), values.vec<T>(), dense->matrix<T>());
  }

 private:
  int64_t rows_;
  int64_t columns_;
};

#define REGISTER(T) \
  REGISTER_KERNEL_BUILDER(Name("DenseFromCoo").Device(DEVICE_CPU).TypeConstraint<T>("T"), DenseFromCooOp<T>)
REGISTER(float);
REGISTER(double);
REGISTER(int32);

}  // namespace sparse_kernels
}  // namespace tensorflow
