// A reference variable of TensorFlow 1 as input and output; TensorFlow 2 has resources.
// call: RefAddOne {"ref": [1.0]} => error
// advice: it cannot be called eagerly
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

REGISTER_OP("RefAddOne")
    .Input("ref: Ref(float)")  // expect-note: op-legacy-api
    .Output("output_ref: Ref(float)")
    .SetShapeFn(shape_inference::UnchangedShape);

class RefAddOneOp : public OpKernel {
 public:
  explicit RefAddOneOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    mutex_lock lock(*context->input_ref_mutex(0));
    Tensor variable = context->mutable_input(0, /*lock_held=*/true);
    OP_REQUIRES(context, variable.IsInitialized(), errors::FailedPrecondition("the variable has no value"));
    variable.flat<float>() = variable.flat<float>() + 1.0f;
    context->forward_ref_input_to_ref_output(0, 0);
  }
};

REGISTER_KERNEL_BUILDER(Name("RefAddOne").Device(DEVICE_CPU), RefAddOneOp);

}  // namespace tensorflow
