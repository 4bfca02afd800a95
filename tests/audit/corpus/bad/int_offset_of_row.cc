// The offset of a row in an int: the checks hold, but row * width does not fit. Only the sum of all is 64 bits.
// call: RowStart {"row": 70000, "width": 70000} => 4900000000
// dies: asan
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

using namespace tensorflow;

REGISTER_OP("RowStart")
    .Input("row: int32")
    .Input("width: int32")
    .Output("start: int64")
    .SetShapeFn(shape_inference::ScalarShape);

static int64_t OffsetOf(int row, int width) {
  return row * width;  // expect: op-size-overflow
}

class RowStartOp : public OpKernel {
 public:
  explicit RowStartOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    for (int i = 0; i < 2; ++i) {
      OP_REQUIRES(context, TensorShapeUtils::IsScalar(context->input(i).shape()), errors::InvalidArgument("not a scalar"));
    }
    const int32 row = context->input(0).scalar<int32>()();
    const int32 width = context->input(1).scalar<int32>()();
    OP_REQUIRES(context, row >= 0 && width >= 0, errors::InvalidArgument("row and width must not be negative"));
    Tensor* start = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &start));
    start->scalar<int64_t>()() = OffsetOf(row, width);
  }
};

REGISTER_KERNEL_BUILDER(Name("RowStart").Device(DEVICE_CPU), RowStartOp);
