// Frames of an audio signal: the hop is an attribute without a lower limit, and the number of frames is divided by it.
// call: AudioFrames {"audio": {"fill": 1.0, "shape": [2, 100]}, "frame_length": 10, "frame_step": 0} => error
// dies: SIGFPE
#include <cstring>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"

namespace tensorflow {
namespace audio {

using shape_inference::InferenceContext;
using shape_inference::ShapeHandle;

REGISTER_OP("AudioFrames")
    .Input("audio: float")
    .Attr("frame_length: int")
    .Attr("frame_step: int")
    .Attr("pad_end: bool = false")
    .Output("frames: float")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle audio;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &audio));
      c->set_output(0, c->MakeShape({c->Dim(audio, 0), c->UnknownDim(), c->UnknownDim()}));
      return absl::OkStatus();
    });

// How many frames a signal has.
static int64_t FrameCount(int64_t samples, int64_t length, int64_t step, bool pad_end) {
  if (pad_end) return (samples + step - 1) / step;  // or: op-attr-unchecked
  if (samples < length) return 0;
  return 1 + (samples - length) / step;  // expect: op-attr-unchecked
}

class AudioFramesOp : public OpKernel {
 public:
  explicit AudioFramesOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("frame_length", &length_));
    OP_REQUIRES_OK(context, context->GetAttr("frame_step", &step_));
    OP_REQUIRES_OK(context, context->GetAttr("pad_end", &pad_end_));
    OP_REQUIRES(context, length_ > 0, errors::InvalidArgument("frame_length must be positive, got ", length_));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& audio = context->input(0);
    OP_REQUIRES(context, audio.dims() == 2, errors::InvalidArgument("audio must be [batch, samples]"));
    const int64_t batch = audio.dim_size(0), samples = audio.dim_size(1);
    const int64_t count = FrameCount(samples, length_, step_, pad_end_);  // or: op-attr-unchecked
    TensorShape shape;
    OP_REQUIRES_OK(context, shape.AddDimWithStatus(batch));
    OP_REQUIRES_OK(context, shape.AddDimWithStatus(count));
    OP_REQUIRES_OK(context, shape.AddDimWithStatus(length_));
    Tensor* frames = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, shape, &frames));
    auto in = audio.matrix<float>();
    auto out = frames->tensor<float, 3>();
    out.setZero();
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t f = 0; f < count; ++f) {
        for (int64_t i = 0; i < length_ && f * step_ + i < samples; ++i) {
          out(b, f, i) = in(b, f * step_ + i);  // or: op-attr-unchecked
        }
      }
    }
  }

 private:
  int64_t length_ = 0;
  int64_t step_ = 0;
  bool pad_end_ = false;
};

REGISTER_KERNEL_BUILDER(Name("AudioFrames").Device(DEVICE_CPU), AudioFramesOp);

}  // namespace audio
}  // namespace tensorflow
