#ifndef SPARSE_TO_DENSE_HELPER_H_
#define SPARSE_TO_DENSE_HELPER_H_

#include "tensorflow/core/framework/tensor_types.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/status.h"

namespace tensorflow {
namespace sparse_kernels {

inline Status CheckRange(int64_t index, int64_t size) {
  if (index >= 0 && index < size) return OkStatus();
  return errors::OutOfRange("index ", index, " is not in [0, ", size, ")");
}

template <typename T>
Status Scatter(typename TTypes<int64_t>::ConstMatrix indices, typename TTypes<T>::ConstVec values,
               typename TTypes<T>::Matrix dense) {
  dense.setZero();
  for (int64_t i = 0; i < values.size(); ++i) {
    const int64_t row = indices(i, 0);
    const int64_t column = indices(i, 1);
    TF_RETURN_IF_ERROR(CheckRange(row, dense.dimension(0)));
    TF_RETURN_IF_ERROR(CheckRange(column, dense.dimension(1)));
    dense(row, column) = values(i);
  }
  return OkStatus();
}

}  // namespace sparse_kernels
}  // namespace tensorflow

#endif  // SPARSE_TO_DENSE_HELPER_H_
