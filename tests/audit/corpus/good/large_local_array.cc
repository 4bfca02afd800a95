// twin: op-large-frame
// call: RankOfBytes {"data": {"value": [1, 2, 3, 3], "dtype": "uint8"}} => 3
// call: RankOfBytes {"data": {"value": 255, "dtype": "uint8"}} => 1
// call: RankOfBytes {"data": {"zeros": [0], "dtype": "uint8"}} => 0
#include <array>
#include <vector>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

using namespace tensorflow;

constexpr int kBuckets = 1 << 11;

REGISTER_OP("RankOfBytes").Input("data: uint8").Output("distinct: int32").SetShapeFn(shape_inference::ScalarShape);

class RankOfBytesOp : public OpKernel {
 public:
  explicit RankOfBytesOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const auto data = context->input(0).flat<uint8>();
    std::vector<std::array<int32, kBuckets>> seen(kBuckets);
    int32 distinct = 0;
    for (int64_t i = 0; i < data.size(); ++i) {
      int32& cell = seen[data(i)][data(i) / 2];
      if (cell == 0) ++distinct;
      cell = 1;
    }
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &output));
    output->scalar<int32>()() = distinct;
  }
};

REGISTER_KERNEL_BUILDER(Name("RankOfBytes").Device(DEVICE_CPU), RankOfBytesOp);
