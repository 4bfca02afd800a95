// Counts labels over several threads in one common vector.
// call: LabelHistogram {"labels": {"fill": 1, "shape": [4000000], "dtype": "int32"}, "classes": 4} => [0, 4000000, 0, 0]
// wrong: increments of several threads get lost
// repeats: 60
#include <vector>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/util/work_sharder.h"

namespace tensorflow {

REGISTER_OP("LabelHistogram")
    .Input("labels: int32")
    .Attr("classes: int >= 1")
    .Output("counts: int64")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      c->set_output(0, c->Vector(c->UnknownDim()));
      return absl::OkStatus();
    });

class LabelHistogramOp : public OpKernel {
 public:
  explicit LabelHistogramOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("classes", &classes_));
    OP_REQUIRES(ctx, classes_ > 0 && classes_ <= 65536, errors::InvalidArgument("classes must be in [1, 65536]"));
  }

  void Compute(OpKernelContext* ctx) override {
    const Tensor& labels_tensor = ctx->input(0);
    const auto labels = labels_tensor.flat<int32>();
    Tensor* counts_tensor = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, TensorShape({classes_}), &counts_tensor));
    auto counts = counts_tensor->vec<int64_t>();
    std::vector<int64_t> total(classes_, 0);
    const auto work = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int32 label = labels(i);
        if (label >= 0 && label < classes_) ++total[label];  // expect: op-shared-write
      }
    };
    const DeviceBase::CpuWorkerThreads& threads = *ctx->device()->tensorflow_cpu_worker_threads();
    Shard(threads.num_threads, threads.workers, labels.size(), 2000, work);
    for (int64_t c = 0; c < classes_; ++c) counts(c) = total[c];
  }

 private:
  int64_t classes_ = 0;
};

REGISTER_KERNEL_BUILDER(Name("LabelHistogram").Device(DEVICE_CPU), LabelHistogramOp);

}  // namespace tensorflow
