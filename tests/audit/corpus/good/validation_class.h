#ifndef REGIONS_VALIDATION_CLASS_H_
#define REGIONS_VALIDATION_CLASS_H_

#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/status.h"

namespace regions {

struct Regions {
  int64_t count = 0;

  tensorflow::Status Init(const tensorflow::Tensor& image, const tensorflow::Tensor& boxes,
                          const tensorflow::Tensor& scales) {
    using tensorflow::errors::InvalidArgument;
    if (!tensorflow::TensorShapeUtils::IsMatrix(image.shape())) return InvalidArgument("image must be a matrix");
    if (boxes.dims() != 2 || boxes.dim_size(1) != 4) return InvalidArgument("boxes must be [n, 4]");
    if (scales.dims() != 1) return InvalidArgument("scales must be a vector");
    if (scales.dim_size(0) != boxes.dim_size(0)) return InvalidArgument("each box needs a scale");
    count = boxes.dim_size(0);
    const auto box = boxes.matrix<tensorflow::int32>();
    for (int64_t b = 0; b < count; ++b) {
      const bool ordered = box(b, 0) >= 0 && box(b, 1) >= 0 && box(b, 0) < box(b, 2) && box(b, 1) < box(b, 3);
      if (!ordered || box(b, 2) > image.dim_size(0) || box(b, 3) > image.dim_size(1)) {
        return InvalidArgument("box ", b, " is empty or not within the image");
      }
    }
    return tensorflow::OkStatus();
  }
};

}  // namespace regions

#endif  // REGIONS_VALIDATION_CLASS_H_
