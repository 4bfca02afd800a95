// A macro makes each stage of a pipeline; a stage calls the next and keeps 390 kB of its own meanwhile.
// call: Pipeline {"x": [1.0]} => any
// dies: SIGSEGV
#include <array>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

using namespace tensorflow;

using Window = std::array<float, 100000>;

#define STAGE(name, next, gain)                                        \
  __attribute__((noinline)) static float name(const Window& previous) { \
    Window window;                                                     \
    for (size_t i = 0; i < window.size(); ++i) {                       \
      window[i] = previous[i] * gain;                                  \
    }                                                                  \
    return next(window) + window[0];                                   \
  }

static float Last(const Window& window) { return window[window.size() - 1]; }

STAGE(Stage01, Last, 0.5f)
STAGE(Stage02, Stage01, 2.0f)
STAGE(Stage03, Stage02, 0.5f)
STAGE(Stage04, Stage03, 2.0f)
STAGE(Stage05, Stage04, 0.5f)
STAGE(Stage06, Stage05, 2.0f)
STAGE(Stage07, Stage06, 0.5f)
STAGE(Stage08, Stage07, 2.0f)
STAGE(Stage09, Stage08, 0.5f)
STAGE(Stage10, Stage09, 2.0f)
STAGE(Stage11, Stage10, 0.5f)
STAGE(Stage12, Stage11, 2.0f)
STAGE(Stage13, Stage12, 0.5f)
STAGE(Stage14, Stage13, 2.0f)
STAGE(Stage15, Stage14, 0.5f)
STAGE(Stage16, Stage15, 2.0f)
STAGE(Stage17, Stage16, 0.5f)
STAGE(Stage18, Stage17, 2.0f)
STAGE(Stage19, Stage18, 0.5f)
STAGE(Stage20, Stage19, 2.0f)
STAGE(Stage21, Stage20, 0.5f)
STAGE(Stage22, Stage21, 2.0f)

REGISTER_OP("Pipeline").Input("x: float").Output("y: float").SetShapeFn(shape_inference::UnchangedShape);

class PipelineOp : public OpKernel {
 public:
  explicit PipelineOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {  // expect: op-stack-depth
    const Tensor& x = context->input(0);
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, x.shape(), &y));
    const auto in = x.flat<float>();
    auto out = y->flat<float>();
    Window first;
    for (int64_t i = 0; i < in.size(); ++i) {
      first.fill(in(i));
      out(i) = Stage22(first);
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("Pipeline").Device(DEVICE_CPU), PipelineOp);
