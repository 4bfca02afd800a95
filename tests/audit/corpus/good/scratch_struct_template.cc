// twin: op-large-frame
// call: SmoothRows {"x": [[1.0, 2.0], [3.0, 4.0]]} => [[1.0, 2.0], [3.0, 4.0]]
// call: SmoothRows {"x": {"zeros": [0]}} => []
// call: SmoothRows {"x": {"zeros": [3000, 3]}} => any
#include "scratch_struct_template.h"

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace smooth {

using namespace tensorflow;

REGISTER_OP("SmoothRows")
    .Input("x: T")
    .Output("y: T")
    .Attr("T: {float, double}")
    .SetShapeFn(shape_inference::UnchangedShape);

template <typename T>
struct SmoothFunctor {
  void operator()(typename TTypes<T>::ConstFlat x, typename TTypes<T>::Flat y) const {
    Scratch<T, SMOOTH_ROWS, SMOOTH_COLUMNS> scratch;
    const int64_t capacity = SMOOTH_ROWS * SMOOTH_COLUMNS;
    for (int64_t start = 0; start < x.size(); start += capacity) {
      const int64_t count = std::min<int64_t>(capacity, x.size() - start);
      for (int64_t i = 0; i < count; ++i) scratch.cells[i] = x(start + i);
      for (int64_t i = 0; i < count; ++i) y(start + i) = scratch.cells[i];
    }
  }
};

template <typename T>
class SmoothRowsOp : public OpKernel {
 public:
  explicit SmoothRowsOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& x = context->input(0);
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, x.shape(), &y));
    SmoothFunctor<T>()(x.flat<T>(), y->flat<T>());
  }
};

REGISTER_KERNEL_BUILDER(Name("SmoothRows").Device(DEVICE_CPU).TypeConstraint<float>("T"), SmoothRowsOp<float>);
REGISTER_KERNEL_BUILDER(Name("SmoothRows").Device(DEVICE_CPU).TypeConstraint<double>("T"), SmoothRowsOp<double>);

}  // namespace smooth
