// The kernel wants a matrix; the shape function asks for nothing and says nothing.
// call: RowSums {"x": [[1.0, 2.0]]} => [3.0]
// advice: a wrong rank is found at run time only
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

REGISTER_OP("RowSums").Input("x: float").Output("sums: float").SetShapeFn(shape_inference::UnknownShape);  // expect-note: op-shape-function-weak

class RowSumsOp : public OpKernel {
 public:
  explicit RowSumsOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& x = context->input(0);
    OP_REQUIRES(context, x.dims() == 2, errors::InvalidArgument("x must be a matrix"));
    Tensor* sums = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({x.dim_size(0)}), &sums));
    const auto in = x.matrix<float>();
    auto out = sums->vec<float>();
    out.setZero();
    for (int64_t r = 0; r < in.dimension(0); ++r) {
      for (int64_t c = 0; c < in.dimension(1); ++c) out(r) += in(r, c);
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("RowSums").Device(DEVICE_CPU), RowSumsOp);

}  // namespace tensorflow
