// Bugs in TensorFlow ops. The first four were looked at while the grouping was written, the last four were held out.
#include <stdexcept>
#include <vector>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

using namespace tensorflow;

namespace {

// One CHECK that two ops run into.
int64_t RowSize(const Tensor& input, int64_t index) {
  const int64_t rows = input.NumElements();
  CHECK_LT(index, rows);
  return rows;
}

__attribute__((noinline)) float FirstScore(const Tensor& input) {
  const float* data = input.flat<float>().data();
  return data[0] * 2;
}

class ScoreRowsOp : public OpKernel {
 public:
  explicit ScoreRowsOp(OpKernelConstruction* context) : OpKernel(context) {}
  void Compute(OpKernelContext* context) override {
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({1}), &output));
    output->flat<float>()(0) = FirstScore(context->input(0));
  }
};

class TakeRowOp : public OpKernel {
 public:
  explicit TakeRowOp(OpKernelConstruction* context) : OpKernel(context) {}
  void Compute(OpKernelContext* context) override {
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({1}), &output));
    output->flat<float>()(0) = RowSize(context->input(0), 5);
  }
};

class SkipRowOp : public OpKernel {
 public:
  explicit SkipRowOp(OpKernelConstruction* context) : OpKernel(context) {}
  void Compute(OpKernelContext* context) override {
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({1}), &output));
    const int64_t skipped = context->input(0).NumElements() + 3;
    output->flat<float>()(0) = skipped - RowSize(context->input(0), skipped);
  }
};

class BucketSumOp : public OpKernel {
 public:
  explicit BucketSumOp(OpKernelConstruction* context) : OpKernel(context) {}
  void Compute(OpKernelContext* context) override {
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({1}), &output));
    const int64_t size = context->input(0).NumElements();
    output->flat<float>()(0) = 100 / size;
  }
};

int64_t Pairs(const std::vector<int>& items, const int64_t* outer, int64_t from) {
  int64_t mine = *outer + 1;
  if (from > static_cast<int64_t>(items.size())) from = 0;
  return Pairs(items, &mine, from + 2) + mine;
}

class MergePairsOp : public OpKernel {
 public:
  explicit MergePairsOp(OpKernelConstruction* context) : OpKernel(context) {}
  void Compute(OpKernelContext* context) override {
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({1}), &output));
    std::vector<int> items(4);
    int64_t depth = 0;
    output->flat<float>()(0) = Pairs(items, &depth, 0);
  }
};

template <typename T>
T ValueAt(const Tensor& input, int64_t index) {
  return input.flat<T>().data()[index];
}

class GatherFarOp : public OpKernel {
 public:
  explicit GatherFarOp(OpKernelConstruction* context) : OpKernel(context) {}
  void Compute(OpKernelContext* context) override {
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({1}), &output));
    output->flat<float>()(0) = ValueAt<float>(context->input(0), 1LL << 40);
  }
};

class PadRowsOp : public OpKernel {
 public:
  explicit PadRowsOp(OpKernelConstruction* context) : OpKernel(context) {}
  void Compute(OpKernelContext* context) override {
    Tensor* output = nullptr;
    TensorShape shape;
    shape.AddDim(context->input(0).NumElements() - 10);
    OP_REQUIRES_OK(context, context->allocate_output(0, shape, &output));
  }
};

class LookupRowOp : public OpKernel {
 public:
  explicit LookupRowOp(OpKernelConstruction* context) : OpKernel(context) {}
  void Compute(OpKernelContext* context) override {
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({1}), &output));
    std::vector<float> table(context->input(0).NumElements());
    output->flat<float>()(0) = table.at(8);
  }
};

absl::Status AnyShape(shape_inference::InferenceContext* context) {
  context->set_output(0, context->UnknownShape());
  return absl::OkStatus();
}

}  // namespace

#define OP(name) \
  REGISTER_OP(#name).Input("input: float").Output("output: float").SetShapeFn(AnyShape); \
  REGISTER_KERNEL_BUILDER(Name(#name).Device(DEVICE_CPU), name##Op)

OP(ScoreRows);
OP(TakeRow);
OP(SkipRow);
OP(BucketSum);
OP(MergePairs);
OP(GatherFar);
OP(PadRows);
OP(LookupRow);
