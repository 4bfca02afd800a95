// twin: op-recursion
// call: FillArea {"image": [[0, 0, 1], [1, 0, 1]], "colour": 7} => [[7, 7, 1], [1, 7, 1]]
// call: FillArea {"image": {"zeros": [500, 500], "dtype": "int32"}, "colour": 7} => any
// call: FillArea {"image": {"zeros": [0, 3], "dtype": "int32"}, "colour": 7} => error
// call: FillArea {"image": [1, 2], "colour": 7} => error
// call: FillArea {"image": [[3]], "colour": 3} => [[3]]
#include <utility>
#include <vector>

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
    std::vector<std::pair<int64_t, int64_t>> open = {{0, 0}};
    while (!open.empty()) {
      const auto [y, x] = open.back();
      open.pop_back();
      if (y < 0 || x < 0 || y >= rows || x >= columns || out(y, x) != old) continue;
      out(y, x) = colour_;
      open.emplace_back(y - 1, x);
      open.emplace_back(y + 1, x);
      open.emplace_back(y, x - 1);
      open.emplace_back(y, x + 1);
    }
  }

 private:
  int32 colour_;
};

REGISTER_KERNEL_BUILDER(Name("FillArea").Device(DEVICE_CPU), FillAreaOp);
