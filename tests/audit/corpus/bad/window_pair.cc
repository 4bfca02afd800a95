// The window is taken to have two elements, a height and a width, but only its rank is checked.
// call: CropBox {"image": {"zeros": [8, 8]}, "window": {"value": [3], "dtype": "int32"}} => error
// dies: asan
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tensorflow {

REGISTER_OP("CropBox")
    .Input("image: float")
    .Input("window: int32")
    .Output("crop: float")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      shape_inference::ShapeHandle image;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &image));
      c->set_output(0, c->UnknownShapeOfRank(2));
      return absl::OkStatus();
    });

class CropBoxOp : public OpKernel {
 public:
  explicit CropBoxOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& image = context->input(0);
    const Tensor& window = context->input(1);
    OP_REQUIRES(context, image.dims() == 2, errors::InvalidArgument("image must be 2-D"));
    OP_REQUIRES(context, window.dims() == 1, errors::InvalidArgument("window must be 1-D"));
    const auto size = window.vec<int32>();
    const int64_t height = size(0);  // expect: op-element-unchecked
    const int64_t width = size(1);  // or: op-element-unchecked
    OP_REQUIRES(context, height >= 0 && height <= image.dim_size(0) && width >= 0 && width <= image.dim_size(1),
                errors::InvalidArgument("the window is larger than the image"));
    Tensor* crop = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({height, width}), &crop));
    const auto in = image.matrix<float>();
    auto out = crop->matrix<float>();
    for (int64_t y = 0; y < height; ++y) {
      for (int64_t x = 0; x < width; ++x) {
        out(y, x) = in(y, x);
      }
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("CropBox").Device(DEVICE_CPU), CropBoxOp);

}  // namespace tensorflow
