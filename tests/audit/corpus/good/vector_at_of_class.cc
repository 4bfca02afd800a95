// twin: op-exception
// call: NameOfClass {"ids": [2, 0]} => ["bird", "cat"]
// call: NameOfClass {"ids": [3]} => error
// call: NameOfClass {"ids": [-1]} => error
// call: NameOfClass {"ids": {"zeros": [0], "dtype": "int32"}} => []
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
  bool Has(int32 id) const { return id >= 0 && static_cast<size_t>(id) < names_.size(); }
  const std::string& Get(int32 id) const {
    if (!Has(id)) throw std::out_of_range("no such class");
    return names_.at(id);
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
    for (int64_t i = 0; i < in.size(); ++i) {
      OP_REQUIRES(context, table_.Has(in(i)), errors::InvalidArgument("no class ", in(i)));
      out(i) = table_.Get(in(i));
    }
  }

 private:
  const ClassNames table_;
};

REGISTER_KERNEL_BUILDER(Name("NameOfClass").Device(DEVICE_CPU), NameOfClassOp);

}  // namespace tensorflow
