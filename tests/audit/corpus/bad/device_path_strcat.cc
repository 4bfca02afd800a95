// strcpy and strcat of attributes into a fixed buffer, in the constructor.
// call: PathOfShard {"x": [1.0], "folder": "/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "file": "b"} => any
// dies: asan
#include <cstring>
#include <string>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

REGISTER_OP("PathOfShard")
    .Input("x: float")
    .Output("path: string")
    .Attr("folder: string")
    .Attr("file: string")
    .SetShapeFn(shape_inference::ScalarShape);

class PathOfShardOp : public OpKernel {
 public:
  explicit PathOfShardOp(OpKernelConstruction* context) : OpKernel(context) {
    std::string folder, file;
    OP_REQUIRES_OK(context, context->GetAttr("folder", &folder));
    OP_REQUIRES_OK(context, context->GetAttr("file", &file));
    OP_REQUIRES(context, file.size() < 16, errors::InvalidArgument("file must be shorter than 16 characters"));
    char path[96];
    strcpy(path, folder.c_str());  // expect: op-string-overflow
    strcat(path, "/");  // or: op-string-overflow
    strcat(path, file.c_str());  // or: op-string-overflow
    path_ = path;
  }

  void Compute(OpKernelContext* context) override {
    Tensor* path = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &path));
    path->scalar<tstring>()() = path_;
  }

 private:
  std::string path_;
};

REGISTER_KERNEL_BUILDER(Name("PathOfShard").Device(DEVICE_CPU), PathOfShardOp);

}  // namespace tensorflow
