// dim_size(3) of an image batch of any rank: only the channels are looked at.
// call: ChannelMean {"images": [[1.0, 2.0]]} => error
// dies: SIGABRT
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

REGISTER_OP("ChannelMean")
    .Input("images: float")
    .Output("means: float")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      shape_inference::ShapeHandle images;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 4, &images));
      c->set_output(0, c->Vector(c->Dim(images, 3)));
      return OkStatus();
    });

class ChannelMeanOp : public OpKernel {
 public:
  explicit ChannelMeanOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& images = context->input(0);
    const int64_t channels = images.dim_size(3);  // expect: op-rank-unchecked
    OP_REQUIRES(context, channels == 1 || channels == 3 || channels == 4,
                errors::InvalidArgument("images must have 1, 3 or 4 channels, got ", channels));
    Tensor* means = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({channels}), &means));
    auto out = means->vec<float>();
    out.setZero();
    const auto pixels = images.flat_inner_dims<float>();
    for (int64_t p = 0; p < pixels.dimension(0); ++p) {
      for (int64_t c = 0; c < channels; ++c) out(c) += pixels(p, c) / pixels.dimension(0);
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("ChannelMean").Device(DEVICE_CPU), ChannelMeanOp);

}  // namespace tensorflow
