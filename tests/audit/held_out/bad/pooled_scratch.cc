// The Status of allocate_temp is dropped in a helper: with a size of an attribute, the tensor can stay empty.
// call: BlurRows {"image": {"fill": 1.0, "shape": [2, 3]}, "radius": 1000000000000000} => error
// dies: SIGSEGV
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
  PaddedRow(OpKernelContext* ctx, int64_t width, int64_t radius) : width_(width), radius_(radius) {
    TensorShape shape;
    shape.AddDimWithStatus(width + 2 * radius).IgnoreError();
    ctx->allocate_temp(DataTypeToEnum<T>::value, shape, &storage_);  // expect: op-status-ignored
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
    OP_REQUIRES(ctx, radius_ >= 0 && radius_ < (int64_t{1} << 60), errors::InvalidArgument("radius"));
  }

  void Compute(OpKernelContext* ctx) override {
    const Tensor& image = ctx->input(0);
    OP_REQUIRES(ctx, image.dims() == 2, errors::InvalidArgument("image must be a matrix"));
    Tensor* blurred = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, image.shape(), &blurred));
    const auto in = image.matrix<T>();
    auto out = blurred->matrix<T>();
    PaddedRow<T> row(ctx, in.dimension(1), radius_);
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
