// Overruns of local arrays: ops with one bug that kills in several ways, and an op with two bugs.
#include <cstring>
#include <string>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

using namespace tensorflow;

// A little too long a name changes what the callers have saved on the stack, a longer one the return address, and the
// longest one runs off the stack.
REGISTER_OP("JoinedPath")
    .Input("x: float")
    .Output("y: string")
    .Attr("folder: string")
    .SetShapeFn(shape_inference::ScalarShape);

class JoinedPathOp : public OpKernel {
 public:
  explicit JoinedPathOp(OpKernelConstruction* context) : OpKernel(context) {
    std::string folder;
    OP_REQUIRES_OK(context, context->GetAttr("folder", &folder));
    char path[96];
    strcpy(path, folder.c_str());
    strcat(path, "/");
    path_ = path;
  }

  void Compute(OpKernelContext* context) override {
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &y));
    y->scalar<tstring>()() = path_;
  }

 private:
  std::string path_;
};

// An index that nothing checks in one function, and a text that may be too long in another.
REGISTER_OP("LabelledRow")
    .Input("x: float")
    .Input("row: int64")
    .Output("y: string")
    .Attr("label: string")
    .SetShapeFn(shape_inference::ScalarShape);

__attribute__((noinline)) float row_of(const Tensor& x, int64_t row) { return x.flat<float>().data()[row]; }

__attribute__((noinline)) std::string labelled(const std::string& label, float value) {
  char text[96];
  strcpy(text, label.c_str());
  return text + std::to_string(value);
}

class LabelledRowOp : public OpKernel {
 public:
  explicit LabelledRowOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("label", &label_));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& x = context->input(0);
    OP_REQUIRES(context, x.NumElements() > 0, errors::InvalidArgument("x must not be empty"));
    OP_REQUIRES(context, context->input(1).dims() == 0, errors::InvalidArgument("row must be a number"));
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &y));
    y->scalar<tstring>()() = labelled(label_, row_of(x, context->input(1).scalar<int64_t>()()));
  }

 private:
  std::string label_;
};

REGISTER_KERNEL_BUILDER(Name("JoinedPath").Device(DEVICE_CPU), JoinedPathOp);
REGISTER_KERNEL_BUILDER(Name("LabelledRow").Device(DEVICE_CPU), LabelledRowOp);
