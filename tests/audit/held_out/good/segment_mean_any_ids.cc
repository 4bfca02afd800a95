// Segment means, with the type of the ids as a parameter of the kernel.
// call: SegmentMeanIds {"data": {"fill": 1.0, "shape": [3, 2]}, "ids": {"value": [0, 0, 1], "dtype": "int32"}, "num_segments": 2} => [[1.0, 1.0], [1.0, 1.0]]
// call: SegmentMeanIds {"data": {"fill": 1.0, "shape": [3, 2]}, "ids": {"value": [0, 0, 2], "dtype": "int64"}, "num_segments": 2} => error
// call: SegmentMeanIds {"data": {"fill": 1.0, "shape": [3, 2]}, "ids": {"value": [0, 0], "dtype": "int64"}, "num_segments": 2} => error
// twin: op-type-unchecked, op-index-unchecked
#include <vector>

#include "tensorflow/core/framework/bounds_check.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"

namespace tensorflow {

REGISTER_OP("SegmentMeanIds")
    .Input("data: float")
    .Input("ids: Tids")
    .Attr("Tids: {int32, int64}")
    .Attr("num_segments: int >= 1")
    .Output("means: float")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      shape_inference::ShapeHandle data;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &data));
      c->set_output(0, c->Matrix(c->UnknownDim(), c->Dim(data, 1)));
      return absl::OkStatus();
    });

template <typename Tids>
class SegmentMeanIdsOp : public OpKernel {
 public:
  explicit SegmentMeanIdsOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("num_segments", &num_segments_));
    OP_REQUIRES(context, num_segments_ > 0 && num_segments_ < (1 << 20), errors::InvalidArgument("num_segments"));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& data_tensor = context->input(0);
    const Tensor& ids_tensor = context->input(1);
    OP_REQUIRES(context, data_tensor.dims() == 2, errors::InvalidArgument("data must be a matrix"));
    OP_REQUIRES(context, ids_tensor.dims() == 1, errors::InvalidArgument("ids must be a vector"));
    OP_REQUIRES(context, ids_tensor.NumElements() == data_tensor.dim_size(0),
                errors::InvalidArgument("there must be an id for each row"));
    const auto data = data_tensor.matrix<float>();
    const auto ids = ids_tensor.flat<Tids>();
    const int64_t width = data.dimension(1);
    Tensor* means_tensor = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({num_segments_, width}), &means_tensor));
    auto means = means_tensor->matrix<float>();
    means.setZero();
    std::vector<int64_t> members(num_segments_, 0);
    for (int64_t row = 0; row < data.dimension(0); ++row) {
      const int64_t segment = internal::SubtleMustCopy(ids(row));
      OP_REQUIRES(context, segment >= 0 && segment < num_segments_,
                  errors::InvalidArgument("id ", segment, " is not in [0, ", num_segments_, ")"));
      means.chip<0>(segment) += data.chip<0>(row);
      ++members[segment];
    }
    for (int64_t s = 0; s < num_segments_; ++s) {
      if (members[s] > 1) means.chip<0>(s) = means.chip<0>(s) / static_cast<float>(members[s]);
    }
  }

 private:
  int64_t num_segments_ = 0;
};

REGISTER_KERNEL_BUILDER(Name("SegmentMeanIds").Device(DEVICE_CPU).TypeConstraint<int32>("Tids"), SegmentMeanIdsOp<int32>);
REGISTER_KERNEL_BUILDER(Name("SegmentMeanIds").Device(DEVICE_CPU).TypeConstraint<int64_t>("Tids"), SegmentMeanIdsOp<int64_t>);

}  // namespace tensorflow
