// Samples neighbours in a graph: the caller's number of samples sizes a vector before anything else looks at it.
// call: SampleNeighbours {"row_ptr": {"value": [0, 1, 2], "dtype": "int64"}, "col": {"value": [1, 0], "dtype": "int64"}, "samples": {"value": -5, "dtype": "int64"}} => error
// dies: SIGSEGV
#include <numeric>
#include <vector>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/lib/random/philox_random.h"
#include "tensorflow/core/lib/random/simple_philox.h"

namespace tensorflow {
namespace graph {

REGISTER_OP("SampleNeighbours")
    .Input("row_ptr: int64")
    .Input("col: int64")
    .Input("samples: int64")
    .Attr("seed: int = 7")
    .Output("neighbours: int64")
    .SetIsStateful()
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      c->set_output(0, c->Vector(c->UnknownDim()));
      return absl::OkStatus();
    });

using Ids = TTypes<int64_t>::ConstVec;

absl::Status CheckGraph(const Ids& row_ptr, const Ids& col) {
  if (row_ptr.size() < 2) return errors::InvalidArgument("the graph has no nodes");
  if (row_ptr(0) != 0 || row_ptr(row_ptr.size() - 1) != col.size()) {
    return errors::InvalidArgument("row_ptr must go from 0 to ", col.size());
  }
  for (int64_t i = 1; i < row_ptr.size(); ++i) {
    if (row_ptr(i) < row_ptr(i - 1)) return errors::InvalidArgument("row_ptr must not decrease");
  }
  return absl::OkStatus();
}

class SampleNeighboursOp : public OpKernel {
 public:
  explicit SampleNeighboursOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("seed", &seed_));
  }

  void Compute(OpKernelContext* ctx) override {
    const Tensor& row_ptr_t = ctx->input(0);
    const Tensor& col_t = ctx->input(1);
    const Tensor& samples_t = ctx->input(2);
    OP_REQUIRES(ctx, row_ptr_t.dims() == 1 && col_t.dims() == 1, errors::InvalidArgument("the graph must be in CSR form"));
    OP_REQUIRES(ctx, samples_t.dims() == 0, errors::InvalidArgument("samples must be a scalar"));
    const auto row_ptr = row_ptr_t.vec<int64_t>();
    const auto col = col_t.vec<int64_t>();
    OP_REQUIRES_OK(ctx, CheckGraph(row_ptr, col));

    const int64_t samples = samples_t.scalar<int64_t>()();
    std::vector<int64_t> picked;
    picked.reserve(samples);  // expect: op-allocation-unchecked
    random::PhiloxRandom philox(seed_);
    random::SimplePhilox random(&philox);
    const int64_t nodes = row_ptr.size() - 1;
    for (int64_t s = 0; s < samples; ++s) {
      const int64_t node = random.Uniform64(nodes);
      const int64_t degree = row_ptr(node + 1) - row_ptr(node);
      picked.push_back(degree == 0 ? node : col(row_ptr(node) + random.Uniform64(degree)));
    }
    Tensor* neighbours = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, TensorShape({static_cast<int64_t>(picked.size())}), &neighbours));
    std::copy(picked.begin(), picked.end(), neighbours->vec<int64_t>().data());
  }

 private:
  int64_t seed_ = 0;
};

REGISTER_KERNEL_BUILDER(Name("SampleNeighbours").Device(DEVICE_CPU), SampleNeighboursOp);

}  // namespace graph
}  // namespace tensorflow
