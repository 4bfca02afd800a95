// The first of a list of inputs that may be empty.
// call: SumOfList {"tensors": []} => error
// dies: SIGABRT
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

REGISTER_OP("SumOfList")
    .Input("tensors: N * float")
    .Attr("N: int >= 0")
    .Output("sum: float")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      c->set_output(0, c->num_inputs() > 0 ? c->input(0) : c->Scalar());
      return OkStatus();
    });

class SumOfListOp : public OpKernel {
 public:
  explicit SumOfListOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    OpInputList tensors;
    OP_REQUIRES_OK(context, context->input_list("tensors", &tensors));
    const Tensor& first = tensors[0];  // expect: op-null-input
    Tensor* sum = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, first.shape(), &sum));  // or: op-null-input
    auto out = sum->flat<float>();
    out.setZero();
    for (int i = 0; i < tensors.size(); ++i) {
      OP_REQUIRES(context, tensors[i].shape() == first.shape(), errors::InvalidArgument("shapes differ"));
      out += tensors[i].flat<float>();
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("SumOfList").Device(DEVICE_CPU), SumOfListOp);

}  // namespace tensorflow
