// The working memory of a transform is a local struct of std::arrays: 12 MiB.
// call: FrameSpectrum {"audio": {"value": [1.0, 2.0, 3.0, 4.0], "dtype": "float64"}, "frame": 2, "hop": 1} => any
// dies: SIGSEGV
#include <array>
#include <cmath>
#include <complex>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"

using namespace tensorflow;

namespace {

constexpr int kMaxFrame = 1 << 19;

template <typename Real>
struct TransformState {
  using Complex = std::complex<Real>;
  std::array<Complex, kMaxFrame> values;
  std::array<Real, kMaxFrame> window;
  int size = 0;
};

template <typename Real>
class FramePower {
 public:
  explicit FramePower(int64_t frame) : frame_(frame) {}

  Real operator()(const Real* samples) const {
    TransformState<Real> state;  // expect: op-large-frame
    state.size = static_cast<int>(frame_);
    for (int i = 0; i < state.size; ++i) {
      state.window[i] = static_cast<Real>(0.5 - 0.5 * std::cos(2 * 3.14159265358979 * i / state.size));
      state.values[i] = {samples[i] * state.window[i], Real(0)};
    }
    Real power = 0;
    for (int i = 0; i < state.size; ++i) power += std::norm(state.values[i]);
    return power;
  }

 private:
  int64_t frame_;
};

}  // namespace

REGISTER_OP("FrameSpectrum")
    .Attr("T: {float, double} = DT_FLOAT")
    .Attr("frame: int >= 1")
    .Attr("hop: int >= 1")
    .Input("audio: T")
    .Output("power: T")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      c->set_output(0, c->Vector(c->UnknownDim()));
      return absl::OkStatus();
    });

template <typename T>
class FrameSpectrumOp : public OpKernel {
 public:
  explicit FrameSpectrumOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("frame", &frame_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("hop", &hop_));
    OP_REQUIRES(ctx, frame_ >= 1 && frame_ <= kMaxFrame, errors::InvalidArgument("frame must be in [1, ", kMaxFrame, "]"));
    OP_REQUIRES(ctx, hop_ >= 1, errors::InvalidArgument("hop must be positive"));
  }

  void Compute(OpKernelContext* ctx) override {
    const Tensor& audio_tensor = ctx->input(0);
    OP_REQUIRES(ctx, TensorShapeUtils::IsVector(audio_tensor.shape()), errors::InvalidArgument("audio must be a vector"));
    const auto audio = audio_tensor.vec<T>();
    const int64_t samples = audio.size();
    const int64_t frames = samples < frame_ ? 0 : (samples - frame_) / hop_ + 1;
    Tensor* power_tensor = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, TensorShape({frames}), &power_tensor));
    auto power = power_tensor->vec<T>();
    const FramePower<T> power_of(frame_);
    for (int64_t f = 0; f < frames; ++f) power(f) = power_of(audio.data() + f * hop_);
  }

 private:
  int64_t frame_ = 0;
  int64_t hop_ = 0;
};

#define REGISTER_FRAME_SPECTRUM(type) \
  REGISTER_KERNEL_BUILDER(Name("FrameSpectrum").Device(DEVICE_CPU).TypeConstraint<type>("T"), FrameSpectrumOp<type>)
REGISTER_FRAME_SPECTRUM(float);
REGISTER_FRAME_SPECTRUM(double);
#undef REGISTER_FRAME_SPECTRUM
