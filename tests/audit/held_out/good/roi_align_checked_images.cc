// RoIAlign: the image numbers of all boxes are verified before the functor runs.
// call: RoiAlignAvg {"features": {"fill": 1.0, "shape": [1, 4, 4, 2]}, "rois": [[3.0, 0.0, 0.0, 2.0, 2.0]], "pooled": 2} => error
// call: RoiAlignAvg {"features": {"fill": 1.0, "shape": [1, 4, 4, 1]}, "rois": [[0.0, 0.0, 0.0, 2.0, 2.0]], "pooled": 1} => [[[[1.0]]]]
// call: RoiAlignAvg {"features": {"fill": 1.0, "shape": [1, 4, 4, 1]}, "rois": [[-1.0, 0.0, 0.0, 2.0, 2.0]], "pooled": 1} => error
// call: RoiAlignAvg {"features": {"fill": 1.0, "shape": [1, 4, 0, 1]}, "rois": [[0.0, 0.0, 0.0, 2.0, 2.0]], "pooled": 1} => error
// twin: op-index-unchecked
#include <algorithm>
#include <cmath>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"

namespace tensorflow {

typedef Eigen::ThreadPoolDevice CPUDevice;

namespace functor {

struct RoiAlignParams {
  int64_t batch, height, width, channels;
  int pooled;
  float spatial_scale;
};

template <typename T>
T Bilinear(const T* image, const RoiAlignParams& p, float y, float x, int64_t c) {
  if (!(y >= -1.0f && y <= static_cast<float>(p.height)) || !(x >= -1.0f && x <= static_cast<float>(p.width))) return T(0);
  y = std::max(y, 0.0f);
  x = std::max(x, 0.0f);
  int64_t y0 = std::min<int64_t>(static_cast<int64_t>(y), p.height - 1);
  int64_t x0 = std::min<int64_t>(static_cast<int64_t>(x), p.width - 1);
  const int64_t y1 = std::min(y0 + 1, p.height - 1);
  const int64_t x1 = std::min(x0 + 1, p.width - 1);
  const float ly = std::min(y - y0, 1.0f), lx = std::min(x - x0, 1.0f);
  const auto at = [&](int64_t r, int64_t s) {
    return static_cast<float>(image[(r * p.width + s) * p.channels + c]);
  };
  return static_cast<T>((1 - ly) * (1 - lx) * at(y0, x0) + (1 - ly) * lx * at(y0, x1) + ly * (1 - lx) * at(y1, x0) +
                        ly * lx * at(y1, x1));
}

template <typename Device, typename T>
struct RoiAlign;

template <typename T>
struct RoiAlign<CPUDevice, T> {
  void operator()(const RoiAlignParams& p, typename TTypes<T, 4>::ConstTensor features, TTypes<float>::ConstMatrix rois,
                  typename TTypes<T, 4>::Tensor out) {
    for (int64_t r = 0; r < rois.dimension(0); ++r) {
      const int64_t batch = static_cast<int64_t>(rois(r, 0));
      const T* image = features.data() + batch * p.height * p.width * p.channels;
      const float y0 = rois(r, 1) * p.spatial_scale, x0 = rois(r, 2) * p.spatial_scale;
      const float step_y = std::max(rois(r, 3) * p.spatial_scale - y0, 1.0f) / p.pooled;
      const float step_x = std::max(rois(r, 4) * p.spatial_scale - x0, 1.0f) / p.pooled;
      for (int i = 0; i < p.pooled; ++i) {
        for (int j = 0; j < p.pooled; ++j) {
          for (int64_t c = 0; c < p.channels; ++c) {
            out(r, i, j, c) = Bilinear(image, p, y0 + (i + 0.5f) * step_y, x0 + (j + 0.5f) * step_x, c);
          }
        }
      }
    }
  }
};

}  // namespace functor

REGISTER_OP("RoiAlignAvg")
    .Attr("T: {float, double} = DT_FLOAT")
    .Attr("pooled: int >= 1 = 7")
    .Attr("spatial_scale: float = 1.0")
    .Input("features: T")
    .Input("rois: float")
    .Output("pooled_features: T")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      shape_inference::ShapeHandle features, rois;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 4, &features));
      TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 2, &rois));
      int pooled;
      TF_RETURN_IF_ERROR(c->GetAttr("pooled", &pooled));
      c->set_output(0, c->MakeShape({c->Dim(rois, 0), pooled, pooled, c->Dim(features, 3)}));
      return absl::OkStatus();
    });

template <typename Device, typename T>
class RoiAlignAvgOp : public OpKernel {
 public:
  explicit RoiAlignAvgOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("pooled", &pooled_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("spatial_scale", &spatial_scale_));
    OP_REQUIRES(ctx, pooled_ > 0 && pooled_ <= 128, errors::InvalidArgument("pooled must be in [1, 128]"));
  }

  static absl::Status CheckImages(const Tensor& rois, int64_t images) {
    const auto boxes = rois.matrix<float>();
    for (int64_t r = 0; r < boxes.dimension(0); ++r) {
      const float image = boxes(r, 0);
      if (!(image >= 0.0f) || image >= static_cast<float>(images)) {
        return errors::OutOfRange("box ", r, " is in image ", image, " of ", images);
      }
    }
    return absl::OkStatus();
  }

  void Compute(OpKernelContext* ctx) override {
    const Tensor& features = ctx->input(0);
    const Tensor& rois = ctx->input(1);
    OP_REQUIRES(ctx, features.dims() == 4, errors::InvalidArgument("features must be NHWC"));
    OP_REQUIRES(ctx, features.NumElements() > 0, errors::InvalidArgument("features are empty"));
    OP_REQUIRES(ctx, rois.dims() == 2 && rois.dim_size(1) == 5, errors::InvalidArgument("rois must be [N, 5]"));
    OP_REQUIRES_OK(ctx, CheckImages(rois, features.dim_size(0)));
    const functor::RoiAlignParams params{features.dim_size(0), features.dim_size(1), features.dim_size(2),
                                         features.dim_size(3), pooled_, spatial_scale_};
    Tensor* out = nullptr;
    TensorShape shape;
    OP_REQUIRES_OK(ctx, TensorShape::BuildTensorShape({rois.dim_size(0), pooled_, pooled_, params.channels}, &shape));
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, shape, &out));
    functor::RoiAlign<Device, T>()(params, features.tensor<T, 4>(), rois.matrix<float>(), out->tensor<T, 4>());
  }

 private:
  int pooled_ = 7;
  float spatial_scale_ = 1.0f;
};

#define REGISTER_CPU(T) \
  REGISTER_KERNEL_BUILDER(Name("RoiAlignAvg").Device(DEVICE_CPU).TypeConstraint<T>("T"), RoiAlignAvgOp<CPUDevice, T>);
REGISTER_CPU(float);
REGISTER_CPU(double);
#undef REGISTER_CPU

}  // namespace tensorflow
