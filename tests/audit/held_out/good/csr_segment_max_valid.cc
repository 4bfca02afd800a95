// Maxima of the rows of a CSR matrix, whose row pointers are validated before the threads start.
// call: CsrSegmentMax {"row_ptr": {"value": [0, 500], "dtype": "int64"}, "values": [1.0, 2.0]} => error
// call: CsrSegmentMax {"row_ptr": {"value": [0, 1, 3], "dtype": "int64"}, "values": [1.0, 2.0, 5.0]} => [1.0, 5.0]
// call: CsrSegmentMax {"row_ptr": {"value": [0, -1, 3], "dtype": "int32"}, "values": [1.0, 2.0, 5.0]} => error
// call: CsrSegmentMax {"row_ptr": {"value": [0, 3, 1, 3], "dtype": "int32"}, "values": [1.0, 2.0, 5.0]} => error
// call: CsrSegmentMax {"row_ptr": {"zeros": [0], "dtype": "int32"}, "values": [1.0]} => error
// twin: op-offset-unchecked
#include <algorithm>
#include <limits>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/util/work_sharder.h"

namespace tensorflow {
namespace sparse {

REGISTER_OP("CsrSegmentMax")
    .Attr("T: {float, int32, int64}")
    .Attr("Tptr: {int32, int64} = DT_INT64")
    .Input("row_ptr: Tptr")
    .Input("values: T")
    .Output("maxima: T")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      c->set_output(0, c->Vector(c->UnknownDim()));
      return absl::OkStatus();
    });

template <typename T, typename Tptr>
struct RowMax {
  typename TTypes<Tptr>::ConstVec row_ptr;
  typename TTypes<T>::ConstVec values;
  typename TTypes<T>::Vec maxima;

  void operator()(int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
      T best = std::numeric_limits<T>::lowest();
      const Tptr end = row_ptr(row + 1);
      for (Tptr k = row_ptr(row); k < end; ++k) {
        best = std::max(best, values(k));
      }
      maxima(row) = best;
    }
  }
};

template <typename Tptr>
absl::Status ValidateRowPointers(typename TTypes<Tptr>::ConstVec row_ptr, int64_t nonzeros) {
  if (row_ptr(0) != 0) return errors::InvalidArgument("row_ptr must begin with 0, not ", row_ptr(0));
  for (int64_t i = 1; i < row_ptr.size(); ++i) {
    if (row_ptr(i - 1) > row_ptr(i)) return errors::InvalidArgument("row_ptr must not decrease, as it does at ", i);
  }
  const Tptr last = row_ptr(row_ptr.size() - 1);
  if (static_cast<int64_t>(last) != nonzeros) return errors::InvalidArgument("row_ptr ends with ", last);
  return absl::OkStatus();
}

template <typename T, typename Tptr>
class CsrSegmentMaxOp : public OpKernel {
 public:
  explicit CsrSegmentMaxOp(OpKernelConstruction* c) : OpKernel(c) {}

  void Compute(OpKernelContext* c) override {
    const Tensor& row_ptr = c->input(0);
    const Tensor& values = c->input(1);
    OP_REQUIRES(c, TensorShapeUtils::IsVector(row_ptr.shape()) && row_ptr.NumElements() >= 1,
                errors::InvalidArgument("row_ptr must be a vector of at least one element"));
    OP_REQUIRES(c, TensorShapeUtils::IsVector(values.shape()), errors::InvalidArgument("values must be a vector"));
    OP_REQUIRES_OK(c, ValidateRowPointers<Tptr>(row_ptr.vec<Tptr>(), values.NumElements()));
    const int64_t rows = row_ptr.NumElements() - 1;
    Tensor* maxima = nullptr;
    OP_REQUIRES_OK(c, c->allocate_output(0, TensorShape({rows}), &maxima));
    RowMax<T, Tptr> row_max{row_ptr.vec<Tptr>(), values.vec<T>(), maxima->vec<T>()};
    auto* workers = c->device()->tensorflow_cpu_worker_threads();
    const int64_t cost = rows == 0 ? 1 : std::max<int64_t>(1, values.NumElements() / rows);
    Shard(workers->num_threads, workers->workers, rows, cost,
          [&row_max](int64_t first, int64_t last) { row_max(first, last); });
  }
};

#define REGISTER_KERNELS(T, Tptr)                                                                     \
  REGISTER_KERNEL_BUILDER(                                                                            \
      Name("CsrSegmentMax").Device(DEVICE_CPU).TypeConstraint<T>("T").TypeConstraint<Tptr>("Tptr"),   \
      CsrSegmentMaxOp<T, Tptr>)
#define REGISTER_ALL(T)          \
  REGISTER_KERNELS(T, int32_t);  \
  REGISTER_KERNELS(T, int64_t)
REGISTER_ALL(float);
REGISTER_ALL(int32_t);
REGISTER_ALL(int64_t);
#undef REGISTER_ALL
#undef REGISTER_KERNELS

}  // namespace sparse
}  // namespace tensorflow
