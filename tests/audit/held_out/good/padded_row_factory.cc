// The padded row is made by a method that returns the Status of allocate_temp.
// call: BlurRows {"image": {"fill": 1.0, "shape": [2, 3]}, "radius": 1000000000000000} => error
// call: BlurRows {"image": [[3.0, 3.0, 3.0]], "radius": 1} => [[2.0, 3.0, 2.0]]
// call: BlurRows {"image": [3.0], "radius": 1} => error
// call: BlurRows {"image": {"zeros": [0, 3]}, "radius": 0} => []
// twin: op-status-ignored, op-allocation-unchecked
#include <algorithm>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"

namespace tensorflow {
namespace image {

REGISTER_OP("BlurRows")
    .Attr("T: {float, double}")
    .Attr("radius: int >= 0 = 1")
    .Input("image: T")
    .Output("blurred: T")
    .SetShapeFn(shape_inference::UnchangedShape);

template <typename T>
class PaddedRow {
 public:
  PaddedRow(int64_t width, int64_t radius) : width_(width), radius_(radius) {}

  absl::Status Init(OpKernelContext* ctx) {
    TensorShape shape;
    TF_RETURN_IF_ERROR(TensorShape::BuildTensorShape({width_ + 2 * radius_}, &shape));
    return ctx->allocate_temp(DataTypeToEnum<T>::value, shape, &storage_);
  }

  void Fill(const T* row) {
    auto padded = storage_.vec<T>();
    padded.setZero();
    for (int64_t x = 0; x < width_; ++x) padded(x + radius_) = row[x];
  }

  T Mean(int64_t x) const {
    const auto padded = storage_.vec<T>();
    T sum = T(0);
    for (int64_t k = 0; k <= 2 * radius_; ++k) sum += padded(x + k);
    return sum / static_cast<T>(2 * radius_ + 1);
  }

 private:
  const int64_t width_, radius_;
  Tensor storage_;
};

template <typename T>
class BlurRowsOp : public OpKernel {
 public:
  explicit BlurRowsOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("radius", &radius_));
    OP_REQUIRES(ctx, radius_ >= 0 && radius_ < (int64_t{1} << 24), errors::InvalidArgument("radius"));
  }

  void Compute(OpKernelContext* ctx) override {
    const Tensor& image = ctx->input(0);
    OP_REQUIRES(ctx, image.dims() == 2, errors::InvalidArgument("image must be a matrix"));
    Tensor* blurred = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, image.shape(), &blurred));
    const auto in = image.matrix<T>();
    auto out = blurred->matrix<T>();
    PaddedRow<T> row(in.dimension(1), radius_);
    OP_REQUIRES_OK(ctx, row.Init(ctx));
    for (int64_t y = 0; y < in.dimension(0); ++y) {
      row.Fill(in.data() + y * in.dimension(1));
      for (int64_t x = 0; x < in.dimension(1); ++x) out(y, x) = row.Mean(x);
    }
  }

 private:
  int64_t radius_ = 0;
};

#define REGISTER(T) REGISTER_KERNEL_BUILDER(Name("BlurRows").Device(DEVICE_CPU).TypeConstraint<T>("T"), BlurRowsOp<T>)
REGISTER(float);
REGISTER(double);
#undef REGISTER

}  // namespace image
}  // namespace tensorflow
