// A tree of nodes that hold their children in a vector. Its destructor calls itself once for each level.
//
// Flags:  -O1, and again -O0
// Stack:  8 MiB, and again 2,000,000 bytes
// Shows:  wide (10,000 children without children) survives everywhere: its destructor is one level deep. 100,000 deep
//         survives 8 MiB (destroyed 2,204 KiB, walked first 3,148 KiB) and dies by SIGSEGV in 2,000,000 bytes, in the
//         destructor or in Count. At -O0 a level of the destructor is several frames, and 8 MiB are too few.
#include <vector>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

using namespace tensorflow;

REGISTER_OP("Tree").Input("levels: int32").Input("children: int32").Attr("walk: bool = false").Output("nodes: int32");

struct TreeNode {
  std::vector<TreeNode> children;
};

int Count(const TreeNode& node) {
  int nodes = 1;
  for (const TreeNode& child : node.children) nodes += Count(child);
  return nodes;
}

class TreeOp : public OpKernel {
 public:
  explicit TreeOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("walk", &walk_));
  }

  void Compute(OpKernelContext* context) override {
    Tensor* nodes = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &nodes));
    TreeNode root;
    root.children.resize(context->input(1).scalar<int>()());  // wide: children without children of their own
    for (int i = 1; i < context->input(0).scalar<int>()(); ++i) {  // deep: each has one child
      TreeNode parent;
      parent.children.push_back(std::move(root));
      root = std::move(parent);
    }
    nodes->scalar<int>()() = walk_ ? Count(root) : 0;
  }  // here root is destroyed, and with it all levels

 private:
  bool walk_;
};

REGISTER_KERNEL_BUILDER(Name("Tree").Device(DEVICE_CPU), TreeOp);
