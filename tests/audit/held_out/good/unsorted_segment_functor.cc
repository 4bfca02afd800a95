// An unsorted segment reduction with a functor for each reduction; ids outside are dropped, as on the GPU.
// call: UnsortedSegmentBest {"data": [[1.0, 2.0], [3.0, 4.0]], "ids": {"value": [1, -1], "dtype": "int32"}, "num_segments": {"value": 2, "dtype": "int32"}} => [[0.0, 0.0], [1.0, 2.0]]
// call: UnsortedSegmentBest {"data": [[1.0, 2.0], [3.0, 4.0]], "ids": {"value": [100, 0], "dtype": "int64"}, "num_segments": {"value": -1, "dtype": "int32"}} => error
// call: UnsortedSegmentBest {"data": [[1.0, 2.0], [3.0, 4.0]], "ids": {"value": [0], "dtype": "int64"}, "num_segments": {"value": 1, "dtype": "int32"}} => error
// twin: op-index-unchecked, op-sizes-unrelated, op-allocation-unchecked, op-type-unchecked
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/bounds_check.h"
#include "tensorflow/core/framework/register_types.h"

namespace tensorflow {

using CPUDevice = Eigen::ThreadPoolDevice;

REGISTER_OP("UnsortedSegmentBest")
    .Input("data: T")
    .Input("ids: Tindices")
    .Input("num_segments: int32")
    .Output("best: T")
    .Attr("T: {float, double, int32}")
    .Attr("Tindices: {int32, int64}")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      c->set_output(0, c->UnknownShapeOfRank(2));
      return absl::OkStatus();
    });

namespace functor {

template <typename T>
struct MaxOp {
  T operator()(T a, T b) const { return a < b ? b : a; }
};

template <typename Device, typename T, typename Index, typename ReductionF>
struct UnsortedSegmentFunctor;

template <typename T, typename Index, typename ReductionF>
struct UnsortedSegmentFunctor<CPUDevice, T, Index, ReductionF> {
  void operator()(OpKernelContext* ctx, typename TTypes<Index>::ConstFlat segment_ids,
                  typename TTypes<T, 2>::ConstTensor data, typename TTypes<T, 2>::Tensor output) {
    output.setConstant(T(0));
    if (data.size() == 0) return;
    const int64_t N = segment_ids.dimension(0);
    const Index num_segments = static_cast<Index>(output.dimension(0));
    ReductionF reduction;
    for (int64_t i = 0; i < N; ++i) {
      const Index j = internal::SubtleMustCopy(segment_ids(i));
      if (j < 0) continue;
      OP_REQUIRES(ctx, FastBoundsCheck(j, num_segments),
                  errors::InvalidArgument("segment_ids[", i, "] = ", j, " is out of range [0, ", num_segments, ")"));
      for (int64_t k = 0; k < data.dimension(1); ++k) output(j, k) = reduction(data(i, k), output(j, k));
    }
  }
};

}  // namespace functor

template <typename T, typename Index, typename DeviceReductionFunctor>
class UnsortedSegmentBestOp : public OpKernel {
 public:
  explicit UnsortedSegmentBestOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& data = context->input(0);
    const Tensor& segment_ids = context->input(1);
    const Tensor& num_segments = context->input(2);
    OP_REQUIRES(context, TensorShapeUtils::IsScalar(num_segments.shape()),
                errors::InvalidArgument("num_segments should be a scalar, not shape ", num_segments.shape().DebugString()));
    OP_REQUIRES(context, TensorShapeUtils::StartsWith(data.shape(), segment_ids.shape()),
                errors::InvalidArgument("data.shape = ", data.shape().DebugString(),
                                        " does not start with segment_ids.shape = ", segment_ids.shape().DebugString()));
    OP_REQUIRES(context, data.dims() == 2 && segment_ids.dims() == 1, errors::InvalidArgument("data must be a matrix"));
    const int64_t output_rows = static_cast<int64_t>(num_segments.scalar<int32>()());
    OP_REQUIRES(context, output_rows >= 0 && output_rows <= (1 << 24),
                errors::InvalidArgument("num_segments = ", output_rows));
    TensorShape output_shape;
    OP_REQUIRES_OK(context, output_shape.AddDimWithStatus(output_rows));
    for (int i = segment_ids.dims(); i < data.dims(); i++) {
      OP_REQUIRES_OK(context, output_shape.AddDimWithStatus(data.dim_size(i)));
    }
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, output_shape, &output));
    reduction_functor_(context, segment_ids.flat<Index>(), data.matrix<T>(), output->matrix<T>());
  }

 protected:
  DeviceReductionFunctor reduction_functor_;
};

#define REGISTER_UNSORTED(type, index)                                                                           \
  REGISTER_KERNEL_BUILDER(                                                                                       \
      Name("UnsortedSegmentBest").Device(DEVICE_CPU).TypeConstraint<type>("T").TypeConstraint<index>("Tindices"), \
      UnsortedSegmentBestOp<type, index,                                                                         \
                            functor::UnsortedSegmentFunctor<CPUDevice, type, index, functor::MaxOp<type>>>)
#define REGISTER_UNSORTED_ALL(type) \
  REGISTER_UNSORTED(type, int32);   \
  REGISTER_UNSORTED(type, int64_t);
TF_CALL_float(REGISTER_UNSORTED_ALL);
TF_CALL_double(REGISTER_UNSORTED_ALL);
TF_CALL_int32(REGISTER_UNSORTED_ALL);
#undef REGISTER_UNSORTED_ALL
#undef REGISTER_UNSORTED

}  // namespace tensorflow
