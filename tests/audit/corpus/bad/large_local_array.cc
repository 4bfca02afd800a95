// A table of 16 MiB among the local variables.
// call: RankOfBytes {"data": {"value": [1, 2, 3], "dtype": "uint8"}} => 3
// dies: SIGSEGV
#include <cstring>

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
    int32 seen[kBuckets][kBuckets];  // expect: op-large-frame
    memset(seen, 0, sizeof(seen));
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
