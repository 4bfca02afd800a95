// vector::at throws where the class number is too large; the table is built by a throwing helper, too.
// call: NameOfClass {"ids": {"value": [7], "dtype": "int32"}} => error
// graph: yes
// dies: SIGABRT
#include <stdexcept>
#include <string>
#include <vector>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

REGISTER_OP("NameOfClass").Input("ids: int32").Output("names: string").SetShapeFn(shape_inference::UnchangedShape);

class ClassNames {
 public:
  const std::string& Get(int32 id) const {
    if (id < 0) throw std::out_of_range("negative class");  // expect: op-exception
    return names_.at(id);  // expect: op-exception
  }

 private:
  std::vector<std::string> names_ = {"cat", "dog", "bird"};
};

class NameOfClassOp : public OpKernel {
 public:
  explicit NameOfClassOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& ids = context->input(0);
    Tensor* names = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, ids.shape(), &names));
    const auto in = ids.flat<int32>();
    auto out = names->flat<tstring>();
    for (int64_t i = 0; i < in.size(); ++i) out(i) = table_.Get(in(i));
  }

 private:
  const ClassNames table_;
};

REGISTER_KERNEL_BUILDER(Name("NameOfClass").Device(DEVICE_CPU), NameOfClassOp);

}  // namespace tensorflow
