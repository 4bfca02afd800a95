// The window of a crop is parsed by a function that returns a Status.
// call: CropWindow {"image": {"fill": 1, "shape": [4, 4], "dtype": "uint8"}, "window": {"value": [0, 1], "dtype": "int32"}} => error
// call: CropWindow {"image": {"fill": 1, "shape": [4, 4], "dtype": "uint8"}, "window": {"value": [0, 1, 1, 2], "dtype": "int32"}} => [[1, 1]]
// call: CropWindow {"image": {"fill": 1, "shape": [4, 4], "dtype": "uint8"}, "window": {"value": [0, 1, 1, 2147483647], "dtype": "int32"}} => error
// twin: op-element-unchecked, op-index-unchecked
#include <algorithm>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"

namespace tensorflow {
namespace {

struct Window {
  int64_t top, left, height, width;
};

// A window from [top, left, height, width].
absl::Status ParseWindow(const Tensor& tensor, Window* window) {
  if (tensor.NumElements() != 4) return errors::InvalidArgument("a window has 4 numbers, not ", tensor.NumElements());
  const int32* v = tensor.flat<int32>().data();
  *window = Window{v[0], v[1], v[2], v[3]};
  return absl::OkStatus();
}

absl::Status CheckWindow(const Window& w, const TensorShape& image) {
  if (w.top < 0 || w.left < 0 || w.height < 0 || w.width < 0) {
    return errors::InvalidArgument("the window must not have negative parts");
  }
  if (w.top + w.height > image.dim_size(0) || w.left + w.width > image.dim_size(1)) {
    return errors::InvalidArgument("the window must lie within ", image.DebugString());
  }
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("CropWindow")
    .Input("image: uint8")
    .Input("window: int32")
    .Output("cropped: uint8")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      c->set_output(0, c->Matrix(c->UnknownDim(), c->UnknownDim()));
      return absl::OkStatus();
    });

class CropWindowOp : public OpKernel {
 public:
  explicit CropWindowOp(OpKernelConstruction* ctx) : OpKernel(ctx) {}

  void Compute(OpKernelContext* ctx) override {
    const Tensor* image = nullptr;
    const Tensor* window = nullptr;
    OP_REQUIRES_OK(ctx, ctx->input("image", &image));
    OP_REQUIRES_OK(ctx, ctx->input("window", &window));
    OP_REQUIRES(ctx, TensorShapeUtils::IsMatrix(image->shape()), errors::InvalidArgument("image must be a matrix"));
    OP_REQUIRES(ctx, TensorShapeUtils::IsVector(window->shape()), errors::InvalidArgument("window must be a vector"));
    Window w;
    OP_REQUIRES_OK(ctx, ParseWindow(*window, &w));
    OP_REQUIRES_OK(ctx, CheckWindow(w, image->shape()));

    Tensor* cropped = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output("cropped", TensorShape({w.height, w.width}), &cropped));
    const auto in = image->matrix<uint8>();
    auto out = cropped->matrix<uint8>();
    for (int64_t y = 0; y < w.height; ++y) {
      for (int64_t x = 0; x < w.width; ++x) out(y, x) = in(w.top + y, w.left + x);
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("CropWindow").Device(DEVICE_CPU), CropWindowOp);

}  // namespace tensorflow
