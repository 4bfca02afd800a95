// ParallelFor over the rows; the segment that a row is added to comes from the data, so that threads share it.
// call: SegmentTotals {"x": {"fill": 1.0, "shape": [3000000], "dtype": "float32"}, "segments": {"zeros": [3000000], "dtype": "int32"}, "count": 2} => [3000000.0, 0.0]
// repeats: 3
// wrong: additions get lost
#define EIGEN_USE_THREADS

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

using CPUDevice = Eigen::ThreadPoolDevice;

REGISTER_OP("SegmentTotals")
    .Input("x: float")
    .Input("segments: int32")
    .Attr("count: int >= 1")
    .Output("totals: double")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      int64_t count;
      TF_RETURN_IF_ERROR(c->GetAttr("count", &count));
      c->set_output(0, c->Vector(count));
      return OkStatus();
    });

class SegmentTotalsOp : public OpKernel {
 public:
  explicit SegmentTotalsOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("count", &count_));
    OP_REQUIRES(context, count_ <= 1 << 20, errors::InvalidArgument("count is too large"));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& x_tensor = context->input(0);
    const Tensor& segment_tensor = context->input(1);
    OP_REQUIRES(context, x_tensor.shape() == segment_tensor.shape(), errors::InvalidArgument("shapes differ"));
    const auto x = x_tensor.flat<float>();
    const auto segments = segment_tensor.flat<int32>();
    for (int64_t i = 0; i < segments.size(); ++i) {
      OP_REQUIRES(context, segments(i) >= 0 && segments(i) < count_, errors::InvalidArgument("no such segment"));
    }
    Tensor* totals = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({count_}), &totals));
    auto out = totals->flat<double>();
    out.setZero();
    const CPUDevice& device = context->eigen_device<CPUDevice>();
    device.parallelFor(x.size(), Eigen::TensorOpCost(4, 4, 8), [&](Eigen::Index begin, Eigen::Index end) {
      for (Eigen::Index i = begin; i < end; ++i) {
        out(segments(i)) += x(i);  // expect: op-shared-write
      }
    });
  }

 private:
  int64_t count_;
};

REGISTER_KERNEL_BUILDER(Name("SegmentTotals").Device(DEVICE_CPU), SegmentTotalsOp);

}  // namespace tensorflow
