// The check of an index is in a lambda that a helper calls for each pair; the kernel then uses the indices.
// call: PickPairs {"x": [1.0, 2.0], "pairs": [[0, 300000000]]} => error
// dies: SIGSEGV
#include <functional>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

REGISTER_OP("PickPairs")
    .Input("x: float")
    .Input("pairs: int32")
    .Output("sums: float")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      shape_inference::ShapeHandle pairs;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 2, &pairs));
      c->set_output(0, c->Vector(c->Dim(pairs, 0)));
      return OkStatus();
    });

template <typename Visit>
void ForEachPair(TTypes<int32>::ConstMatrix pairs, Visit visit) {
  for (int64_t i = 0; i < pairs.dimension(0); ++i) visit(pairs(i, 0), pairs(i, 1));
}

class PickPairsOp : public OpKernel {
 public:
  explicit PickPairsOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const auto x = context->input(0).flat<float>();
    const Tensor& pairs_tensor = context->input(1);
    OP_REQUIRES(context, pairs_tensor.dims() == 2 && pairs_tensor.dim_size(1) == 2,
                errors::InvalidArgument("pairs must be [n, 2]"));
    const auto pairs = pairs_tensor.matrix<int32>();
    const int64_t size = x.size();
    ForEachPair(pairs, [&](int32 a, int32 b) {
      OP_REQUIRES(context, a >= 0 && a < size, errors::OutOfRange("bad pair"));  // expect: op-requires-in-lambda
      OP_REQUIRES(context, b >= 0 && b < size, errors::OutOfRange("bad pair"));  // or: op-requires-in-lambda
    });
    Tensor* sums = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({pairs.dimension(0)}), &sums));
    auto out = sums->vec<float>();
    for (int64_t i = 0; i < out.size(); ++i) {
      out(i) = x(pairs(i, 0)) + x(pairs(i, 1));  // or: op-index-unchecked
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("PickPairs").Device(DEVICE_CPU), PickPairsOp);

}  // namespace tensorflow
