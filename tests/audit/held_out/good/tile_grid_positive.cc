// The tiles of an image, whose edge length must be positive before it divides.
// call: TileGrid {"image": {"fill": 1.0, "shape": [8, 8, 3]}, "tile": {"value": 0, "dtype": "int32"}} => error
// call: TileGrid {"image": {"fill": 1.0, "shape": [2, 2, 1]}, "tile": {"value": 2, "dtype": "int32"}} => [[1.0]]
// call: TileGrid {"image": {"fill": 1.0, "shape": [2, 2, 1]}, "tile": {"value": -2147483648, "dtype": "int32"}} => error
// twin: op-division-unchecked
#include <vector>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"

using namespace tensorflow;

REGISTER_OP("TileGrid")
    .Input("image: float")
    .Input("tile: int32")
    .Output("means: float")
    .SetShapeFn([](shape_inference::InferenceContext* c) {
      c->set_output(0, c->UnknownShapeOfRank(2));
      return absl::OkStatus();
    });

class TileGridOp : public OpKernel {
 public:
  explicit TileGridOp(OpKernelConstruction* ctx) : OpKernel(ctx) {}

  void Compute(OpKernelContext* ctx) override {
    const Tensor& image = ctx->input(0);
    const Tensor& tile_tensor = ctx->input(1);
    OP_REQUIRES(ctx, image.dims() == 3, errors::InvalidArgument("image must be [height, width, channels]"));
    OP_REQUIRES(ctx, TensorShapeUtils::IsScalar(tile_tensor.shape()), errors::InvalidArgument("tile must be a scalar"));
    const int32 tile = tile_tensor.scalar<int32>()();
    OP_REQUIRES(ctx, !(tile <= 0), errors::InvalidArgument("tile must be positive, got ", tile));
    const Grid grid = GridFor(image.shape(), tile);
    Tensor* means_tensor = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, TensorShape({grid.rows, grid.columns}), &means_tensor));
    const auto pixels = image.tensor<float, 3>();
    auto means = means_tensor->matrix<float>();
    for (int64_t r = 0; r < grid.rows; ++r) {
      for (int64_t c = 0; c < grid.columns; ++c) {
        double sum = 0;
        int64_t count = 0;
        for (int64_t y = r * grid.tile; y < (r + 1) * grid.tile; ++y) {
          for (int64_t x = c * grid.tile; x < (c + 1) * grid.tile; ++x, ++count) {
            for (int64_t k = 0; k < image.dim_size(2); ++k) sum += pixels(y, x, k);
          }
        }
        means(r, c) = count > 0 ? static_cast<float>(sum / count) : 0.0f;
      }
    }
  }

 private:
  struct Grid {
    int64_t tile, rows, columns;
  };

  static Grid GridFor(const TensorShape& shape, int32 tile) {
    Grid grid;
    grid.tile = tile;
    grid.rows = shape.dim_size(0) / tile;
    grid.columns = shape.dim_size(1) / tile;
    return grid;
  }
};

REGISTER_KERNEL_BUILDER(Name("TileGrid").Device(DEVICE_CPU), TileGridOp);
