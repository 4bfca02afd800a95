// twin: op-rank-unchecked, op-dangling-view, op-recursion, op-recursive-destructor, op-size-overflow, op-allocation-unchecked, op-kernel-state, op-element-unchecked
// call: MeanOfFrames {"frames": [[1.0, 2.0, 3.0, 4.0]], "size": 2} => [2.0, 3.0]
// call: MeanOfFrames {"frames": [[]], "size": 3} => error
// call: MeanOfFrames {"frames": 1.0, "size": 1} => error
// call: MeanOfFrames {"frames": [[1.0, 2.0]], "size": -2147483648} => error
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/platform/threadpool.h"

using namespace tensorflow;
using wide = long long;

REGISTER_OP("MeanOfFrames").Input("frames: float").Input("size: int32").Output("mean: float").SetShapeFn([](shape_inference::InferenceContext* c) {
  c->set_output(0, c->UnknownShapeOfRank(1));
  return OkStatus();
});

// A chain of types that the compiler ends: each level is another instance of the template.
template <typename Inner>
struct Scaled {
  Inner inner;
  float at(int64_t i) const { return 0.5f * inner.at(i); }
};

struct Values {
  const float* data;
  float at(int64_t i) const { return data[i]; }
};

template <typename Inner>
struct Scaled<Scaled<Inner>> {
  Scaled<Inner> impl;
  float at(int64_t i) const { return 0.25f * impl.at(i); }
};

static std::tuple<bool, std::string> HasRank(const Tensor& tensor, int rank) {
  if (tensor.dims() == rank) return std::make_tuple(true, std::string());
  return std::make_tuple(false, std::string("another rank"));
}

class MeanOfFramesOp : public OpKernel {
 public:
  explicit MeanOfFramesOp(OpKernelConstruction* context) : OpKernel(context), dtype_(DT_FLOAT) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& frames = context->input(0);
    const Tensor& size_tensor = context->input(1);
    bool is_right;
    std::string why;
    std::tie(is_right, why) = HasRank(frames, 2);
    OP_REQUIRES(context, is_right, errors::InvalidArgument(why));
    OP_REQUIRES(context, TensorShapeUtils::IsScalar(size_tensor.shape()), errors::InvalidArgument("size is a number"));
    const int size = size_tensor.scalar<int32>()();
    OP_REQUIRES(context, size > 0, errors::InvalidArgument("size must be positive"));
    const std::array<int64_t, 2> extent{{frames.dim_size(0), frames.dim_size(1)}};
    const int64_t pieces = extent[1] / size;
    OP_REQUIRES(context, pieces > 0 && pieces * size == frames.dim_size(1), errors::InvalidArgument("frames do not fit"));
    Tensor sums;
    OP_REQUIRES_OK(context, context->allocate_temp(dtype_, TensorShape({size}), &sums));
    Tensor* mean = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({size}), &mean));
    auto sum = sums.vec<float>();
    auto out = mean->vec<float>();
    sum.setZero();
    const Scaled<Scaled<Values>> values{{{frames.flat<float>().data()}}};
    std::vector<float> row(size);
    {
      auto pool = std::make_unique<thread::ThreadPool>(Env::Default(), "frames", 1);
      pool->Schedule([&row, &values, &extent, size]() {
        for (int64_t r = 0; r < extent[0]; ++r) {
          for (int64_t i = 0; i < extent[1]; ++i) row[i % size] += 8.0f * values.at(static_cast<wide>(r) * extent[1] + i);
        }
      });
    }
    const float count = static_cast<float>(static_cast<wide>(pieces) * extent[0]);
    for (int i = 0; i < size; ++i) out(i) = sum(i) + (count > 0 ? row[i] / count : 0.0f);
  }

 private:
  DataType dtype_;
};

REGISTER_KERNEL_BUILDER(Name("MeanOfFrames").Device(DEVICE_CPU), MeanOfFramesOp);
