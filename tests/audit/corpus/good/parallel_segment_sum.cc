// Shards of the totals: each thread looks at all rows and writes only its own segments.
// twin: op-shared-write, op-index-unchecked
// call: SegmentTotals {"x": {"fill": 1.0, "shape": [300000], "dtype": "float32"}, "segments": {"zeros": [300000], "dtype": "int32"}, "count": 2} => [300000.0, 0.0]
// call: SegmentTotals {"x": [1.0, 2.0], "segments": [1, 2], "count": 2} => error
// call: SegmentTotals {"x": [1.0, 2.0], "segments": [1, -1], "count": 2} => error
// call: SegmentTotals {"x": [1.0, 2.0], "segments": [1], "count": 2} => error
// call: SegmentTotals {"x": {"zeros": [0]}, "segments": {"zeros": [0], "dtype": "int32"}, "count": 1} => [0.0]
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
    device.parallelFor(count_, Eigen::TensorOpCost(4, 4, 8), [&](Eigen::Index begin, Eigen::Index end) {
      for (int64_t i = 0; i < x.size(); ++i) {
        if (segments(i) >= begin && segments(i) < end) out(segments(i)) += x(i);
      }
    });
  }

 private:
  int64_t count_;
};

REGISTER_KERNEL_BUILDER(Name("SegmentTotals").Device(DEVICE_CPU), SegmentTotalsOp);

}  // namespace tensorflow
