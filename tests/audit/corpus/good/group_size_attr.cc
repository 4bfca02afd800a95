// The registered constraint keeps the attribute positive.
// twin: op-attr-unchecked, op-division-unchecked
// call: GroupMeans {"x": [1.0, 2.0, 3.0], "group": 2} => [1.5]
// call: GroupMeans {"x": [1.0, 2.0], "group": 0} => error
// call: GroupMeans {"x": [1.0, 2.0], "group": -3} => error
// call: GroupMeans {"x": {"zeros": [0]}, "group": 1} => []
// call: GroupMeans {"x": [1.0, 2.0], "group": 9223372036854775807} => []
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

REGISTER_OP("GroupMeans")
    .Input("x: float")
    .Attr("group: int >= 1 = 2")
    .Output("means: float")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      c->set_output(0, c->Vector(c->UnknownDim()));
      return absl::OkStatus();
    });

class GroupMeansOp : public OpKernel {
 public:
  explicit GroupMeansOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("group", &group_));
  }

  void Compute(OpKernelContext* context) override {
    auto x = context->input(0).flat<float>();
    const int64_t groups = x.size() / group_;
    Tensor* means = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({groups}), &means));
    auto out = means->vec<float>();
    for (int64_t g = 0; g < groups; ++g) {
      float sum = 0;
      for (int64_t i = 0; i < group_; ++i) sum += x(g * group_ + i);
      out(g) = sum / group_;
    }
  }

 private:
  int64_t group_;
};

REGISTER_KERNEL_BUILDER(Name("GroupMeans").Device(DEVICE_CPU), GroupMeansOp);

}  // namespace tensorflow
