// matrix<T>() of inputs whose rank nobody checks.
// call: SmallMatMul {"a": [1.0, 2.0], "b": [3.0, 4.0]} => error
// dies: SIGABRT
#define EIGEN_USE_THREADS

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/register_types.h"

namespace tensorflow {

typedef Eigen::ThreadPoolDevice CPUDevice;

REGISTER_OP("SmallMatMul")
    .Input("a: T")
    .Input("b: T")
    .Output("product: T")
    .Attr("T: {float, double}")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      shape_inference::ShapeHandle a, b;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &a));
      TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 2, &b));
      c->set_output(0, c->Matrix(c->Dim(a, 0), c->Dim(b, 1)));
      return OkStatus();
    });

template <typename Device, typename T>
class SmallMatMulOp : public OpKernel {
 public:
  explicit SmallMatMulOp(OpKernelConstruction* ctx) : OpKernel(ctx) {}

  void Compute(OpKernelContext* ctx) override {
    const Tensor& a = ctx->input(0);
    const Tensor& b = ctx->input(1);
    const auto left = a.matrix<T>();  // expect: op-rank-unchecked
    const auto right = b.matrix<T>();  // expect: op-rank-unchecked
    OP_REQUIRES(ctx, left.dimension(1) == right.dimension(0), errors::InvalidArgument("inner dimensions differ"));
    Tensor* product = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, TensorShape({left.dimension(0), right.dimension(1)}), &product));
    Eigen::array<Eigen::IndexPair<Eigen::DenseIndex>, 1> pairs = {Eigen::IndexPair<Eigen::DenseIndex>(1, 0)};
    product->matrix<T>().device(ctx->eigen_device<Device>()) = left.contract(right, pairs);
  }
};

#define REGISTER_CPU(T)                                                                  \
  REGISTER_KERNEL_BUILDER(Name("SmallMatMul").Device(DEVICE_CPU).TypeConstraint<T>("T"), \
                          SmallMatMulOp<CPUDevice, T>)
TF_CALL_float(REGISTER_CPU);
TF_CALL_double(REGISTER_CPU);
#undef REGISTER_CPU

}  // namespace tensorflow
