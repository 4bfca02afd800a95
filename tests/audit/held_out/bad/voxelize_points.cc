// Points are sorted into voxels; the count of points of each voxel lies in a variable-length array.
// call: VoxelizePoints {"points": {"fill": 1.0, "shape": [4, 3]}, "grid": [4000, 1000, 1], "voxel_size": 1.0} => any
// dies: SIGSEGV
#include <algorithm>
#include <cmath>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"

namespace tensorflow {

REGISTER_OP("VoxelizePoints")
    .Input("points: float")
    .Input("grid: int32")
    .Attr("voxel_size: float")
    .Output("voxel_of_point: int64")
    .Output("occupied: int64")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      c->set_output(0, c->Vector(c->Dim(c->input(0), 0)));
      c->set_output(1, c->Scalar());
      return absl::OkStatus();
    });

class VoxelizePointsOp : public OpKernel {
 public:
  explicit VoxelizePointsOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("voxel_size", &voxel_size_));
    OP_REQUIRES(ctx, voxel_size_ > 0.0f, errors::InvalidArgument("voxel_size must be positive"));
  }

  void Compute(OpKernelContext* ctx) override {
    const Tensor& points_in = ctx->input(0);
    const Tensor& grid_in = ctx->input(1);
    OP_REQUIRES(ctx, points_in.dims() == 2 && points_in.dim_size(1) == 3,
                errors::InvalidArgument("points must have shape [N, 3]"));
    OP_REQUIRES(ctx, grid_in.dims() == 1 && grid_in.NumElements() == 3,
                errors::InvalidArgument("grid must have three elements"));
    const auto points = points_in.matrix<float>();
    const auto grid = grid_in.vec<int32>();
    int64_t volume = 1;
    for (int axis = 0; axis < 3; ++axis) {
      OP_REQUIRES(ctx, grid(axis) > 0 && grid(axis) <= 4096, errors::InvalidArgument("grid must be in [1, 4096]"));
      volume *= grid(axis);
    }

    const int64_t n = points.dimension(0);
    Tensor* voxel_out = nullptr;
    Tensor* occupied_out = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, TensorShape({n}), &voxel_out));
    OP_REQUIRES_OK(ctx, ctx->allocate_output(1, TensorShape({}), &occupied_out));
    auto voxel_of_point = voxel_out->vec<int64_t>();

    int32 count[volume];  // expect: op-stack-allocation
    std::fill_n(count, volume, 0);
    for (int64_t p = 0; p < n; ++p) {
      int64_t voxel = 0;
      for (int axis = 0; axis < 3; ++axis) {
        const float scaled = std::floor(points(p, axis) / voxel_size_);
        const float limit = static_cast<float>(grid(axis) - 1);
        const int64_t at = std::isfinite(scaled) ? static_cast<int64_t>(std::min(std::max(scaled, 0.0f), limit)) : 0;
        voxel = voxel * grid(axis) + at;
      }
      voxel_of_point(p) = voxel;
      ++count[voxel];
    }
    occupied_out->scalar<int64_t>()() = volume - std::count(count, count + volume, 0);
  }

 private:
  float voxel_size_ = 1.0f;
};

REGISTER_KERNEL_BUILDER(Name("VoxelizePoints").Device(DEVICE_CPU), VoxelizePointsOp);

}  // namespace tensorflow
