// A gather along the second axis by several threads, each on rows of its own; the first bad index comes back as a value.
// call: BatchGatherRows {"params": [[1.0, 2.0], [3.0, 4.0]], "indices": {"value": [[1], [0]], "dtype": "int64"}} => [[2.0], [3.0]]
// call: BatchGatherRows {"params": [[1.0, 2.0], [3.0, 4.0]], "indices": {"value": [[1], [2]], "dtype": "int64"}} => error
// call: BatchGatherRows {"params": [[1.0, 2.0], [3.0, 4.0]], "indices": {"value": [[-1], [0]], "dtype": "int32"}} => error
// call: BatchGatherRows {"params": [[1.0, 2.0]], "indices": {"value": [[0], [0]], "dtype": "int32"}} => error
// call: BatchGatherRows {"params": {"zeros": [1, 0]}, "indices": {"value": [[0]], "dtype": "int32"}} => error
// twin: op-index-unchecked, op-shared-write, op-requires-in-lambda
#include <algorithm>
#include <cstring>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/bounds_check.h"
#include "tensorflow/core/platform/mutex.h"
#include "tensorflow/core/util/work_sharder.h"

namespace tensorflow {

REGISTER_OP("BatchGatherRows")
    .Input("params: T")
    .Input("indices: Tindices")
    .Attr("T: {float, double}")
    .Attr("Tindices: {int32, int64}")
    .Output("gathered: T")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      c->set_output(0, c->input(1));
      return absl::OkStatus();
    });

namespace {

// The batch of the first index that is out of range, or -1.
template <typename T, typename Index>
int64_t HandleCopies(OpKernelContext* ctx, typename TTypes<T>::ConstMatrix params,
                     typename TTypes<Index>::ConstMatrix indices, typename TTypes<T>::Matrix out) {
  const Index limit = static_cast<Index>(params.dimension(1));
  const T* params_base = params.data();
  T* out_base = out.data();
  mutex mu;
  int64_t result = -1;
  auto work = [&](int64_t start, int64_t end) {
    for (int64_t batch = start; batch < end; ++batch) {
      for (int64_t i = 0; i < indices.dimension(1); ++i) {
        const Index index = internal::SubtleMustCopy(indices(batch, i));
        if (!FastBoundsCheck(index, limit)) {
          mutex_lock lock(mu);
          result = batch;
          return;
        }
        out_base[batch * indices.dimension(1) + i] = params_base[batch * params.dimension(1) + index];
      }
    }
  };
  auto* workers = ctx->device()->tensorflow_cpu_worker_threads();
  Shard(workers->num_threads, workers->workers, indices.dimension(0), 100 * (1 + indices.dimension(1)), work);
  return result;
}

}  // namespace

template <typename T, typename Index>
class BatchGatherRowsOp : public OpKernel {
 public:
  explicit BatchGatherRowsOp(OpKernelConstruction* ctx) : OpKernel(ctx) {}

  void Compute(OpKernelContext* ctx) override {
    const Tensor& params = ctx->input(0);
    const Tensor& indices = ctx->input(1);
    OP_REQUIRES(ctx, TensorShapeUtils::IsMatrix(params.shape()) && TensorShapeUtils::IsMatrix(indices.shape()),
                errors::InvalidArgument("params and indices must be matrices"));
    OP_REQUIRES(ctx, params.dim_size(0) == indices.dim_size(0),
                errors::InvalidArgument("params has ", params.dim_size(0), " rows, indices ", indices.dim_size(0)));
    OP_REQUIRES(ctx, params.dim_size(1) <= std::numeric_limits<Index>::max(),
                errors::InvalidArgument("params is too wide for its indices"));
    Tensor* out = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, indices.shape(), &out));
    if (indices.NumElements() == 0) return;
    const int64_t bad = HandleCopies<T, Index>(ctx, params.matrix<T>(), indices.matrix<Index>(), out->matrix<T>());
    OP_REQUIRES(ctx, bad < 0, errors::InvalidArgument("an index of batch ", bad, " is not in [0, ", params.dim_size(1), ")"));
  }
};

#define REGISTER_GATHER(T, Index)                                                                           \
  REGISTER_KERNEL_BUILDER(                                                                                  \
      Name("BatchGatherRows").Device(DEVICE_CPU).TypeConstraint<T>("T").TypeConstraint<Index>("Tindices"), \
      BatchGatherRowsOp<T, Index>)
REGISTER_GATHER(float, int32);
REGISTER_GATHER(float, int64_t);
REGISTER_GATHER(double, int32);
REGISTER_GATHER(double, int64_t);
#undef REGISTER_GATHER

}  // namespace tensorflow
