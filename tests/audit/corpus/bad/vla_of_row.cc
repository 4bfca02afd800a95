// A row is copied to an array of variable length on the stack.
// call: MedianOfRows {"x": {"zeros": [1, 4000000], "dtype": "float32"}} => [0.0]
// dies: SIGSEGV
#include <algorithm>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tensorflow {

REGISTER_OP("MedianOfRows")
    .Input("x: float")
    .Output("medians: float")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      shape_inference::ShapeHandle x;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &x));
      c->set_output(0, c->Vector(c->Dim(x, 0)));
      return absl::OkStatus();
    });

class MedianOfRowsOp : public OpKernel {
 public:
  explicit MedianOfRowsOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& x_tensor = context->input(0);
    OP_REQUIRES(context, x_tensor.dims() == 2 && x_tensor.dim_size(1) > 0,
                errors::InvalidArgument("x must be a matrix with at least one column"));
    const auto x = x_tensor.matrix<float>();
    const int64_t width = x.dimension(1);
    Tensor* medians = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({x.dimension(0)}), &medians));
    for (int64_t row = 0; row < x.dimension(0); ++row) {
      float sorted[width];  // expect: op-stack-allocation
      for (int64_t i = 0; i < width; ++i) sorted[i] = x(row, i);
      std::nth_element(sorted, sorted + width / 2, sorted + width);
      medians->vec<float>()(row) = sorted[width / 2];
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("MedianOfRows").Device(DEVICE_CPU), MedianOfRowsOp);

}  // namespace tensorflow
