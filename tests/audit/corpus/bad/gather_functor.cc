// Row gather with a functor for each device; no row number is compared with the number of rows.
// call: GatherRowsLite {"params": {"fill": 1.0, "shape": [4, 2], "dtype": "float32"}, "rows": [0, 300000000]} => error
// dies: SIGSEGV
#define EIGEN_USE_THREADS

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace sketch {

using namespace tensorflow;
using CPUDevice = Eigen::ThreadPoolDevice;

namespace functor {

template <typename Device, typename T, typename Index>
struct GatherRows;

template <typename T, typename Index>
struct GatherRows<CPUDevice, T, Index> {
  void operator()(const CPUDevice& d, typename TTypes<T>::ConstMatrix params, typename TTypes<Index>::ConstVec rows,
                  typename TTypes<T>::Matrix out) {
    const int64_t width = params.dimension(1);
    for (int64_t i = 0; i < rows.dimension(0); ++i) {
      const Index row = rows(i);
      for (int64_t j = 0; j < width; ++j) {
        out(i, j) = params(row, j);  // expect: op-index-unchecked
      }
    }
  }
};

}  // namespace functor

REGISTER_OP("GatherRowsLite")
    .Input("params: T")
    .Input("rows: Tindex")
    .Output("output: T")
    .Attr("T: {float, double}")
    .Attr("Tindex: {int32, int64}")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      shape_inference::ShapeHandle params, rows;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &params));
      TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 1, &rows));
      c->set_output(0, c->Matrix(c->Dim(rows, 0), c->Dim(params, 1)));
      return absl::OkStatus();
    });

template <typename Device, typename T, typename Index>
class GatherRowsOp : public OpKernel {
 public:
  explicit GatherRowsOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& params = context->input(0);
    const Tensor& rows = context->input(1);
    OP_REQUIRES(context, TensorShapeUtils::IsMatrix(params.shape()),
                errors::InvalidArgument("params must be a matrix, got ", params.shape().DebugString()));
    OP_REQUIRES(context, TensorShapeUtils::IsVector(rows.shape()),
                errors::InvalidArgument("rows must be a vector, got ", rows.shape().DebugString()));
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({rows.dim_size(0), params.dim_size(1)}), &output));
    functor::GatherRows<Device, T, Index>()(context->eigen_device<Device>(), params.matrix<T>(), rows.vec<Index>(),
                                            output->matrix<T>());
  }
};

#define REGISTER_GATHER(T, Index)                                                     \
  REGISTER_KERNEL_BUILDER(Name("GatherRowsLite")                                      \
                              .Device(DEVICE_CPU)                                     \
                              .TypeConstraint<T>("T")                                 \
                              .TypeConstraint<Index>("Tindex"),                       \
                          GatherRowsOp<CPUDevice, T, Index>)
REGISTER_GATHER(float, int32);
REGISTER_GATHER(float, int64_t);
REGISTER_GATHER(double, int32);
REGISTER_GATHER(double, int64_t);
#undef REGISTER_GATHER

}  // namespace sketch
