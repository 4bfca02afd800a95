// twin: op-attr-unchecked
// call: SizeAlong {"x": [[1.0, 2.0]], "axis": 1} => 2
// call: SizeAlong {"x": [[1.0, 2.0]], "axis": -2} => 1
// call: SizeAlong {"x": [[1.0, 2.0]], "axis": 2} => error
// call: SizeAlong {"x": [[1.0, 2.0]], "axis": -3} => error
// call: SizeAlong {"x": 1.0, "axis": 0} => error
// call: SizeAlong {"x": [1.0, 2.0], "axis": 300000000} => error
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
    const int axis = axis_ < 0 ? axis_ + x.dims() : axis_;
    OP_REQUIRES(c, axis >= 0 && axis < x.dims(),
                errors::InvalidArgument("axis must be in [", -x.dims(), ", ", x.dims(), "), got ", axis_));
    Tensor* size = nullptr;
    OP_REQUIRES_OK(c, c->allocate_output(0, TensorShape({}), &size));
    size->scalar<int64_t>()() = x.dim_size(axis);
  }

 private:
  int axis_;
};

REGISTER_KERNEL_BUILDER(Name("SizeAlong").Device(DEVICE_CPU), SizeAlongOp);
