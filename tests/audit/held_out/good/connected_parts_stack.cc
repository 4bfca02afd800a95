// Parts of a graph by a depth-first search with a stack of its own.
// call: ConnectedParts {"next": {"arange": 2000000, "dtype": "int64"}} => any
// call: ConnectedParts {"next": {"value": [-1, 5, 0], "dtype": "int64"}} => [0, 0, 0]
// call: ConnectedParts {"next": {"value": [[1]], "dtype": "int64"}} => error
// twin: op-recursion
#include <functional>
#include <vector>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"

namespace tensorflow {
namespace graph {

REGISTER_OP("ConnectedParts").Input("next: int64").Output("part: int64").SetShapeFn(shape_inference::UnchangedShape);

class PartFinder {
 public:
  explicit PartFinder(TTypes<int64_t>::ConstVec next) : next_(next), part_(next.size(), -1) {}

  std::vector<int64_t> Run() {
    int64_t parts = 0;
    for (int64_t node = 0; node < next_.size(); ++node) {
      if (part_[node] < 0) Visit(node, parts++);
    }
    return part_;
  }

 private:
  void Visit(int64_t first, int64_t part) {
    std::vector<int64_t> open = {first};
    while (!open.empty()) {
      const int64_t node = open.back();
      open.pop_back();
      if (part_[node] >= 0) continue;
      part_[node] = part;
      const int64_t other = next_(node);
      if (other >= 0 && other < next_.size()) open.push_back(other);
      if (node + 1 < next_.size()) open.push_back(node + 1);
    }
  }

  TTypes<int64_t>::ConstVec next_;
  std::vector<int64_t> part_;
};

class ConnectedPartsOp : public OpKernel {
 public:
  explicit ConnectedPartsOp(OpKernelConstruction* ctx) : OpKernel(ctx) {}

  void Compute(OpKernelContext* ctx) override {
    const Tensor& next = ctx->input(0);
    OP_REQUIRES(ctx, TensorShapeUtils::IsVector(next.shape()), errors::InvalidArgument("next must be a vector"));
    Tensor* part = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, next.shape(), &part));
    const std::vector<int64_t> parts = PartFinder(next.vec<int64_t>()).Run();
    std::copy(parts.begin(), parts.end(), part->vec<int64_t>().data());
  }
};

REGISTER_KERNEL_BUILDER(Name("ConnectedParts").Device(DEVICE_CPU), ConnectedPartsOp);

}  // namespace graph
}  // namespace tensorflow
