// Flood fill by a lambda that calls itself: the area of the image is the depth.
// call: FillArea {"image": {"zeros": [2000, 2000], "dtype": "int32"}, "colour": 7} => error
// dies: SIGSEGV
#include <functional>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

using namespace tensorflow;

REGISTER_OP("FillArea")
    .Input("image: int32")
    .Attr("colour: int = 1")
    .Output("filled: int32")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      shape_inference::ShapeHandle image;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &image));
      c->set_output(0, image);
      return absl::OkStatus();
    });

class FillAreaOp : public OpKernel {
 public:
  explicit FillAreaOp(OpKernelConstruction* ctx) : OpKernel(ctx) { OP_REQUIRES_OK(ctx, ctx->GetAttr("colour", &colour_)); }

  void Compute(OpKernelContext* ctx) override {
    const Tensor& image = ctx->input(0);
    OP_REQUIRES(ctx, image.dims() == 2 && image.NumElements() > 0, errors::InvalidArgument("image must be a filled matrix"));
    Tensor* filled = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, image.shape(), &filled));
    auto out = filled->matrix<int32>();
    out = image.matrix<int32>();
    const int32 old = out(0, 0);
    if (old == colour_) return;
    const int64_t rows = out.dimension(0), columns = out.dimension(1);
    std::function<void(int64_t, int64_t)> fill = [&](int64_t y, int64_t x) {  // expect: op-recursion
      if (y < 0 || x < 0 || y >= rows || x >= columns || out(y, x) != old) return;
      out(y, x) = colour_;
      fill(y - 1, x);
      fill(y + 1, x);
      fill(y, x - 1);
      fill(y, x + 1);
    };
    fill(0, 0);
  }

 private:
  int32 colour_;
};

REGISTER_KERNEL_BUILDER(Name("FillArea").Device(DEVICE_CPU), FillAreaOp);
