// A list of nodes, each of which owns the next: destroying it takes a stack frame or more for each.
// call: LastOfList {"values": {"zeros": [2000000], "dtype": "int32"}} => 0
// dies: SIGSEGV
#include <memory>
#include <utility>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

struct ListNode {  // expect: op-recursive-destructor
  int32 value = 0;
  std::unique_ptr<ListNode> next;
};

REGISTER_OP("LastOfList").Input("values: int32").Output("last: int32").SetShapeFn(shape_inference::ScalarShape);

class LastOfListOp : public OpKernel {
 public:
  explicit LastOfListOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const auto values = context->input(0).flat<int32>();
    std::unique_ptr<ListNode> head;
    for (int64_t i = 0; i < values.size(); ++i) {
      auto node = std::make_unique<ListNode>();
      node->value = values(i);
      node->next = std::move(head);
      head = std::move(node);
    }
    Tensor* last = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &last));
    last->scalar<int32>()() = head ? head->value : -1;
  }
};

REGISTER_KERNEL_BUILDER(Name("LastOfList").Device(DEVICE_CPU), LastOfListOp);

}  // namespace tensorflow
