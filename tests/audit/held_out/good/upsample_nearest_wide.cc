// The size of the enlarged image is computed in 64 bits, of factors that are limited first.
// call: UpsampleNearest {"image": {"fill": 1.0, "shape": [1, 2]}, "factor": {"value": 65536, "dtype": "int32"}} => error
// call: UpsampleNearest {"image": [[1.0, 2.0]], "factor": {"value": 2, "dtype": "int32"}} => [[1.0, 1.0, 2.0, 2.0], [1.0, 1.0, 2.0, 2.0]]
// call: UpsampleNearest {"image": {"zeros": [0, 2]}, "factor": {"value": 2, "dtype": "int32"}} => []
// twin: op-size-overflow
#include <vector>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"

namespace tensorflow {
namespace {

REGISTER_OP("UpsampleNearest")
    .Input("image: float")
    .Input("factor: int32")
    .Output("large: float")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      c->set_output(0, c->UnknownShapeOfRank(2));
      return absl::OkStatus();
    });

struct Geometry {
  int64_t height;
  int64_t width;
  int64_t factor;

  int64_t pixels() const { return height * factor * width * factor; }
};

class UpsampleNearestOp : public OpKernel {
 public:
  explicit UpsampleNearestOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& image = context->input(0);
    const Tensor& factor = context->input(1);
    OP_REQUIRES(context, TensorShapeUtils::IsMatrix(image.shape()), errors::InvalidArgument("image must be a matrix"));
    OP_REQUIRES(context, TensorShapeUtils::IsScalar(factor.shape()), errors::InvalidArgument("factor must be a scalar"));
    OP_REQUIRES(context, image.dim_size(0) <= 4096 && image.dim_size(1) <= 4096,
                errors::InvalidArgument("the image is too large"));
    Geometry g;
    g.height = static_cast<int>(image.dim_size(0));
    g.width = static_cast<int>(image.dim_size(1));
    g.factor = factor.scalar<int32>()();
    OP_REQUIRES(context, g.factor >= 1 && g.factor <= 65536, errors::InvalidArgument("factor must be positive"));
    OP_REQUIRES(context, g.pixels() <= (1 << 26), errors::InvalidArgument("the result would be too large"));

    Tensor* large = nullptr;
    const int64_t rows = int64_t{g.height} * g.factor, columns = int64_t{g.width} * g.factor;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({rows, columns}), &large));
    auto in = image.matrix<float>();
    auto out = large->matrix<float>();
    for (int64_t y = 0; y < rows; ++y) {
      for (int64_t x = 0; x < columns; ++x) out(y, x) = in(y / g.factor, x / g.factor);
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("UpsampleNearest").Device(DEVICE_CPU), UpsampleNearestOp);

}  // namespace
}  // namespace tensorflow
