// An asynchronous op over the thread pool, one of whose paths returns without a call of done.
// call: FetchRecords {"records": ["a", ""], "min_length": 1} => any
// hangs: done is not called for an empty record
#include <functional>
#include <string>
#include <utility>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"

namespace tensorflow {

REGISTER_OP("FetchRecords")
    .Input("records: string")
    .Attr("min_length: int >= 0 = 0")
    .Output("lengths: int64")
    .SetShapeFn(shape_inference::UnchangedShape);

class FetchRecordsOp : public AsyncOpKernel {
 public:
  explicit FetchRecordsOp(OpKernelConstruction* ctx) : AsyncOpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("min_length", &min_length_));
  }

  void ComputeAsync(OpKernelContext* ctx, DoneCallback done) override {  // or: op-done-not-called
    Tensor* lengths = nullptr;
    OP_REQUIRES_OK_ASYNC(ctx, ctx->allocate_output(0, ctx->input(0).shape(), &lengths), done);
    auto* workers = ctx->device()->tensorflow_cpu_worker_threads()->workers;
    workers->Schedule([this, ctx, lengths, done = std::move(done)]() {
      const auto records = ctx->input(0).flat<tstring>();
      auto out = lengths->flat<int64_t>();
      for (int64_t i = 0; i < records.size(); ++i) {
        const int64_t length = static_cast<int64_t>(records(i).size());
        if (length < min_length_) {
          ctx->SetStatus(errors::InvalidArgument("record ", i, " is too short"));
          return;  // expect: op-done-not-called
        }
        out(i) = length;
      }
      done();
    });
  }

 private:
  int64_t min_length_ = 0;
};

REGISTER_KERNEL_BUILDER(Name("FetchRecords").Device(DEVICE_CPU), FetchRecordsOp);

}  // namespace tensorflow
