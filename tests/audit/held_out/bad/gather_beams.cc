// The tokens of a beam search, walked back through the ids of the parents, which come from the caller.
// call: GatherBeams {"step_ids": {"value": [[[1, 2]], [[3, 4]]], "dtype": "int32"}, "parent_ids": {"value": [[[0, 0]], [[900, 0]]], "dtype": "int32"}, "end_token": 9} => error
// dies: asan
#include <algorithm>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"

namespace tensorflow {

typedef Eigen::ThreadPoolDevice CPUDevice;

REGISTER_OP("GatherBeams")
    .Input("step_ids: int32")
    .Input("parent_ids: int32")
    .Attr("end_token: int")
    .Output("beams: int32")
    .SetShapeFn(shape_inference::UnchangedShape);

namespace functor {

template <typename Device, typename T>
struct GatherBeams {
  void operator()(OpKernelContext* ctx, const Device& d, typename TTypes<T, 3>::ConstTensor step_ids,
                  typename TTypes<T, 3>::ConstTensor parent_ids, const T end_token, typename TTypes<T, 3>::Tensor beams) {
    const int64_t max_time = step_ids.dimension(0);
    const int64_t batch_size = step_ids.dimension(1);
    const int64_t beam_width = step_ids.dimension(2);
    beams.device(d) = beams.constant(end_token);
    auto DoWork = [&, max_time, beam_width](int64_t batch_beam_start, int64_t batch_beam_end) {
      for (int64_t i = batch_beam_start; i < batch_beam_end; ++i) {
        const int64_t batch = i / beam_width;
        const int64_t beam = i % beam_width;
        beams(max_time - 1, batch, beam) = step_ids(max_time - 1, batch, beam);
        int32 parent = parent_ids(max_time - 1, batch, beam);
        for (int64_t level = max_time - 2; level >= 0; --level) {
          beams(level, batch, beam) = step_ids(level, batch, parent);  // expect: op-index-unchecked
          parent = parent_ids(level, batch, parent);  // or: op-index-unchecked
        }
        bool finished = false;
        for (int64_t time = 0; time < max_time; ++time) {
          if (finished) {
            beams(time, batch, beam) = end_token;
          } else if (beams(time, batch, beam) == end_token) {
            finished = true;
          }
        }
      }
    };
    DoWork(0, batch_size * beam_width);
  }
};

}  // namespace functor

template <typename Device, typename T>
class GatherBeamsOp : public OpKernel {
 public:
  explicit GatherBeamsOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("end_token", &end_token_));
  }

  void Compute(OpKernelContext* ctx) override {
    const Device& device = ctx->eigen_device<Device>();
    const Tensor& step_ids = ctx->input(0);
    const Tensor& parent_ids = ctx->input(1);
    OP_REQUIRES(ctx, step_ids.dims() == 3, errors::InvalidArgument("step_ids must be a 3-tensor"));
    OP_REQUIRES(ctx, step_ids.shape() == parent_ids.shape(), errors::InvalidArgument("the shapes differ"));
    OP_REQUIRES(ctx, step_ids.dim_size(0) > 0 && step_ids.dim_size(2) > 0, errors::InvalidArgument("nothing to gather"));
    Tensor* beams;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, step_ids.shape(), &beams));
    functor::GatherBeams<Device, T>()(ctx, device, step_ids.tensor<T, 3>(), parent_ids.tensor<T, 3>(), end_token_,
                                      beams->tensor<T, 3>());
  }

 private:
  int32 end_token_ = 0;
};

REGISTER_KERNEL_BUILDER(Name("GatherBeams").Device(DEVICE_CPU), GatherBeamsOp<CPUDevice, int32>);

}  // namespace tensorflow
