// Levels of an image pyramid, few and with small tiles.
// call: PyramidLevels {"image": [4.0, 8.0]} => any
// call: PyramidLevels {"image": {"zeros": [0]}} => 0.0
// twin: op-stack-depth
#include <cstring>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"

using namespace tensorflow;

REGISTER_OP("PyramidLevels").Input("image: float").Output("coarse: float").SetShapeFn(shape_inference::ScalarShape);

namespace {

constexpr int kTile = 4 * 1024;

float Reduce(const float* tile, int size) {
  float sum = 0.0f;
  for (int i = 0; i < size; ++i) sum += tile[i];
  return sum;
}

template <int Level>
struct Pyramid {
  __attribute__((noinline)) static float Run(const float* above, int64_t size) {
    float tile[kTile];
    std::memset(tile, 0, sizeof(tile));
    const int64_t half = size < kTile ? size : kTile;
    for (int64_t i = 0; i < half; ++i) tile[i] = 0.5f * above[i];
    const float below = Pyramid<Level - 1>::Run(tile, half);
    return below + Reduce(tile, kTile);
  }
};

template <>
struct Pyramid<0> {
  static float Run(const float* above, int64_t size) { return size > 0 ? above[0] : 0.0f; }
};

}  // namespace

class PyramidLevelsOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    const auto image = ctx->input(0).flat<float>();
    Tensor* coarse = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, TensorShape({}), &coarse));
    coarse->scalar<float>()() = Pyramid<6>::Run(image.data(), image.size());
  }
};

REGISTER_KERNEL_BUILDER(Name("PyramidLevels").Device(DEVICE_CPU), PyramidLevelsOp);
