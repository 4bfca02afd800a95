// The axis is used as the number of a dimension: it may be negative or too large.
// call: SizeAlong {"x": [1.0, 2.0], "axis": 300000000} => error
// dies: SIGABRT
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

using namespace tensorflow;

REGISTER_OP("SizeAlong")
    .Input("x: T")
    .Output("size: int64")
    .Attr("T: type")
    .Attr("axis: int")
    .SetShapeFn(shape_inference::ScalarShape);

class SizeAlongOp : public OpKernel {
 public:
  explicit SizeAlongOp(OpKernelConstruction* c) : OpKernel(c) {
    OP_REQUIRES_OK(c, c->GetAttr("axis", &axis_));
  }

  void Compute(OpKernelContext* c) override {
    const Tensor& x = c->input(0);
    Tensor* size = nullptr;
    OP_REQUIRES_OK(c, c->allocate_output(0, TensorShape({}), &size));
    size->scalar<int64_t>()() = x.dim_size(axis_);  // expect: op-attr-unchecked
  }

 private:
  int axis_;
};

REGISTER_KERNEL_BUILDER(Name("SizeAlong").Device(DEVICE_CPU), SizeAlongOp);
