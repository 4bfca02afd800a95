// twin: op-allocation-unchecked
// call: DecodeRecord {"bytes": {"value": [2, 0, 0, 0, 0, 0, 0, 0, 97, 98, 99], "dtype": "uint8"}} => "ab"
// call: DecodeRecord {"bytes": {"value": [255, 255, 255, 255, 255, 255, 255, 127], "dtype": "uint8"}} => error
// call: DecodeRecord {"bytes": {"value": [1, 0, 0], "dtype": "uint8"}} => error
// call: DecodeRecord {"bytes": {"zeros": [0], "dtype": "uint8"}} => error
// call: DecodeRecord {"bytes": {"zeros": [8], "dtype": "uint8"}} => ""
#include <cstring>
#include <string>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

REGISTER_OP("DecodeRecord").Input("bytes: uint8").Output("record: string").SetShapeFn(shape_inference::ScalarShape);

class DecodeRecordOp : public OpKernel {
 public:
  explicit DecodeRecordOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const auto bytes = context->input(0).flat<uint8>();
    uint64 length = 0;
    OP_REQUIRES(context, bytes.size() >= static_cast<int64_t>(sizeof(length)), errors::DataLoss("a record has a header"));
    std::memcpy(&length, bytes.data(), sizeof(length));
    const uint64 available = static_cast<uint64>(bytes.size()) - sizeof(length);
    OP_REQUIRES(context, length <= available, errors::DataLoss("the record is cut off"));
    std::string record;
    record.resize(length);
    const uint64 taken = std::min(length, available);
    for (uint64 i = 0; i < taken; ++i) record[i] = static_cast<char>(bytes(sizeof(length) + i));
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &output));
    output->scalar<tstring>()() = record;
  }
};

REGISTER_KERNEL_BUILDER(Name("DecodeRecord").Device(DEVICE_CPU), DecodeRecordOp);

}  // namespace tensorflow
