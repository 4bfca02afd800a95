// Indexes a matrix with row and column in the wrong order: out of bounds unless it is square.
// call: FlipDiagonal {"x": {"zeros": [900, 2]}} => any
// dies: asan
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

REGISTER_OP("FlipDiagonal")
    .Input("x: float")
    .Output("y: float")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      shape_inference::ShapeHandle x;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &x));
      c->set_output(0, c->Matrix(c->Dim(x, 1), c->Dim(x, 0)));
      return absl::OkStatus();
    });

class FlipDiagonalOp : public OpKernel {
 public:
  explicit FlipDiagonalOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& x = context->input(0);
    OP_REQUIRES(context, TensorShapeUtils::IsMatrix(x.shape()), errors::InvalidArgument("x must be a matrix"));
    const int64_t rows = x.dim_size(0);
    const int64_t columns = x.dim_size(1);
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {columns, rows}, &y));
    auto in = x.matrix<float>();
    auto out = y->matrix<float>();
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        out(r, c) = in(r, c);  // expect: op-buffer-overrun
      }
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("FlipDiagonal").Device(DEVICE_CPU), FlipDiagonalOp);

}  // namespace tensorflow
