// The channels to keep are compared with the depth of the image, by the largest of them.
// call: SelectChannels {"image": {"fill": 1.0, "shape": [2, 2, 3]}, "channels": [0, 4000]} => error
// call: SelectChannels {"image": [[[1.0, 2.0, 3.0]]], "channels": [2, 0]} => [[[3.0, 1.0]]]
// call: SelectChannels {"image": [[[1.0, 2.0, 3.0]]], "channels": [-1]} => error
// call: SelectChannels {"image": {"zeros": [2, 2, 0]}, "channels": [0]} => error
// twin: op-attr-unchecked
#include <algorithm>
#include <vector>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"

namespace tensorflow {

REGISTER_OP("SelectChannels")
    .Input("image: T")
    .Attr("T: {uint8, float}")
    .Attr("channels: list(int)")
    .Output("selected: T")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      shape_inference::ShapeHandle image;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 3, &image));
      std::vector<int32> channels;
      TF_RETURN_IF_ERROR(c->GetAttr("channels", &channels));
      c->set_output(0, c->MakeShape({c->Dim(image, 0), c->Dim(image, 1), static_cast<int64_t>(channels.size())}));
      return absl::OkStatus();
    });

template <typename T>
class SelectChannelsOp : public OpKernel {
 public:
  explicit SelectChannelsOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("channels", &channels_));
    OP_REQUIRES(ctx, !channels_.empty(), errors::InvalidArgument("no channels are selected"));
    for (const int32 channel : channels_) {
      OP_REQUIRES(ctx, channel >= 0, errors::InvalidArgument("channels must not be negative"));
    }
  }

  void Compute(OpKernelContext* ctx) override {
    const Tensor& image = ctx->input(0);
    OP_REQUIRES(ctx, image.dims() == 3, errors::InvalidArgument("image must be [height, width, channels]"));
    const int32 highest = *std::max_element(channels_.begin(), channels_.end());
    OP_REQUIRES(ctx, highest < image.dim_size(2),
                errors::InvalidArgument("channel ", highest, " of an image with ", image.dim_size(2)));
    const int64_t pixels = image.dim_size(0) * image.dim_size(1), depth = image.dim_size(2);
    Tensor* selected = nullptr;
    const TensorShape shape({image.dim_size(0), image.dim_size(1), static_cast<int64_t>(channels_.size())});
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, shape, &selected));
    const auto in = image.shaped<T, 2>({pixels, depth});
    auto out = selected->shaped<T, 2>({pixels, static_cast<int64_t>(channels_.size())});
    for (int64_t p = 0; p < pixels; ++p) {
      for (size_t c = 0; c < channels_.size(); ++c) out(p, c) = in(p, channels_[c]);
    }
  }

 private:
  std::vector<int32> channels_;
};

REGISTER_KERNEL_BUILDER(Name("SelectChannels").Device(DEVICE_CPU).TypeConstraint<uint8>("T"), SelectChannelsOp<uint8>);
REGISTER_KERNEL_BUILDER(Name("SelectChannels").Device(DEVICE_CPU).TypeConstraint<float>("T"), SelectChannelsOp<float>);

}  // namespace tensorflow
