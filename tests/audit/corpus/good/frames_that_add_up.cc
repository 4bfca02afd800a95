// twin: op-stack-depth
// call: Multigrid {"x": [1.0, 2.0]} => [1.0, 2.0]
// call: Multigrid {"x": {"zeros": [0, 4]}} => any
// call: Multigrid {"x": {"zeros": [501], "dtype": "float64"}} => error
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace multigrid {

using namespace tensorflow;

constexpr int64_t kBlock = 500;

template <int kLevel>
struct Level {
  __attribute__((noinline)) static void Solve(const double* from, int64_t n, double* to) {
    double block[kBlock];
    for (int64_t i = 0; i < n; ++i) block[i] = from[i] * 0.5;
    Level<kLevel - 1>::Solve(block, n, to);
    for (int64_t i = 0; i < n; ++i) to[i] = to[i] + block[i];
  }
};

template <>
struct Level<0> {
  static void Solve(const double* from, int64_t n, double* to) {
    for (int64_t i = 0; i < n; ++i) to[i] = from[i];
  }
};

REGISTER_OP("Multigrid").Input("x: double").Output("y: double").SetShapeFn(shape_inference::UnchangedShape);

class MultigridOp : public OpKernel {
 public:
  explicit MultigridOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& x = context->input(0);
    OP_REQUIRES(context, x.NumElements() <= kBlock, errors::InvalidArgument("x has more than ", kBlock, " elements"));
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, x.shape(), &y));
    Level<24>::Solve(x.flat<double>().data(), x.NumElements(), y->flat<double>().data());
  }
};

REGISTER_KERNEL_BUILDER(Name("Multigrid").Device(DEVICE_CPU), MultigridOp);

}  // namespace multigrid
