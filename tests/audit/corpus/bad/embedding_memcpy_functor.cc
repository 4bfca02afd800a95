// Rows of a table copied by memcpy in a functor: table + row * width, with a row number of the input.
// call: EmbedCopy {"table": {"zeros": [4, 16]}, "rows": [100]} => error
// dies: asan
#include <cstring>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace embed {

using namespace tensorflow;

template <typename T>
struct CopyRows {
  const T* table;
  int64_t width;

  void operator()(const int32* rows, int64_t count, T* out) const {
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(out + i * width, table + rows[i] * width, width * sizeof(T));  // expect: op-index-unchecked
    }
  }
};

REGISTER_OP("EmbedCopy")
    .Input("table: float")
    .Input("rows: int32")
    .Output("out: float")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      shape_inference::ShapeHandle table, out;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &table));
      TF_RETURN_IF_ERROR(c->Concatenate(c->input(1), c->Vector(c->Dim(table, 1)), &out));
      c->set_output(0, out);
      return OkStatus();
    });

class EmbedCopyOp : public OpKernel {
 public:
  explicit EmbedCopyOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& table = context->input(0);
    const Tensor& rows = context->input(1);
    OP_REQUIRES(context, table.dims() == 2, errors::InvalidArgument("table must be a matrix"));
    TensorShape shape = rows.shape();
    OP_REQUIRES_OK(context, shape.AddDimWithStatus(table.dim_size(1)));
    Tensor* out = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, shape, &out));
    const CopyRows<float> copy{table.flat<float>().data(), table.dim_size(1)};
    copy(rows.flat<int32>().data(), rows.NumElements(), out->flat<float>().data());
  }
};

REGISTER_KERNEL_BUILDER(Name("EmbedCopy").Device(DEVICE_CPU), EmbedCopyOp);

}  // namespace embed
