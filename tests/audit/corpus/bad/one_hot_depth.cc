// The depth comes from an input and goes into a TensorShape unchecked: a negative one aborts.
// call: OneHotLite {"ids": [0, 1], "depth": -5} => error
// dies: SIGABRT
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

REGISTER_OP("OneHotLite")
    .Input("ids: int32")
    .Input("depth: int32")
    .Output("hot: float")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      shape_inference::ShapeHandle ids;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &ids));
      c->set_output(0, c->Matrix(c->Dim(ids, 0), c->UnknownDim()));
      return OkStatus();
    });

class OneHotLiteOp : public OpKernel {
 public:
  explicit OneHotLiteOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& ids = context->input(0);
    OP_REQUIRES(context, TensorShapeUtils::IsVector(ids.shape()), errors::InvalidArgument("ids must be a vector"));
    OP_REQUIRES(context, TensorShapeUtils::IsScalar(context->input(1).shape()),
                errors::InvalidArgument("depth must be a scalar"));
    const int32 depth = context->input(1).scalar<int32>()();
    Tensor* hot = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({ids.dim_size(0), depth}), &hot));  // expect: op-allocation-unchecked
    auto out = hot->matrix<float>();
    out.setZero();
    const auto id = ids.vec<int32>();
    for (int64_t i = 0; i < id.size(); ++i) {
      if (id(i) >= 0 && id(i) < depth) out(i, id(i)) = 1.0f;
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("OneHotLite").Device(DEVICE_CPU), OneHotLiteOp);

}  // namespace tensorflow
