#ifndef SPARSE_TO_DENSE_HELPER_H_
#define SPARSE_TO_DENSE_HELPER_H_

#include "tensorflow/core/framework/tensor_types.h"

namespace tensorflow {
namespace sparse_kernels {

template <typename T>
void Scatter(typename TTypes<int64_t>::ConstMatrix indices, typename TTypes<T>::ConstVec values,
             typename TTypes<T>::Matrix dense) {
  dense.setZero();
  for (int64_t i = 0; i < values.size(); ++i) {
    dense(indices(i, 0), indices(i, 1)) = values(i);  // expect: op-index-unchecked
  }
}

}  // namespace sparse_kernels
}  // namespace tensorflow

#endif  // SPARSE_TO_DENSE_HELPER_H_
