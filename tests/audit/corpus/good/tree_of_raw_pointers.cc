// Nodes that point to each other but do not own each other; one vector owns them all. Another type empties its children
// in a loop before it goes.
// twin: op-recursive-destructor
// call: ChainLength {"count": 200000} => 200000
// call: ChainLength {"count": 0} => 0
// call: ChainLength {"count": -1} => error
// call: ChainLength {"count": 2147483647} => error
#include <memory>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"

namespace tensorflow {

struct Link {
  Link* parent = nullptr;
  std::vector<Link*> children;
  std::weak_ptr<Link> other;
};

class Group {
 public:
  Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group() {
    std::vector<std::unique_ptr<Group>> open = std::move(members_);
    while (!open.empty()) {
      std::unique_ptr<Group> last = std::move(open.back());
      open.pop_back();
      for (auto& member : last->members_) open.push_back(std::move(member));
      last->members_.clear();
    }
  }

  Group* Add() {
    members_.push_back(std::make_unique<Group>());
    return members_.back().get();
  }

 private:
  std::vector<std::unique_ptr<Group>> members_;
};

REGISTER_OP("ChainLength").Input("count: int32").Output("length: int64").SetShapeFn(shape_inference::ScalarShape);

class ChainLengthOp : public OpKernel {
 public:
  explicit ChainLengthOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& count_tensor = context->input(0);
    OP_REQUIRES(context, TensorShapeUtils::IsScalar(count_tensor.shape()), errors::InvalidArgument("count must be a scalar"));
    const int32 count = count_tensor.scalar<int32>()();
    OP_REQUIRES(context, count >= 0 && count <= 1000000, errors::InvalidArgument("count must be in [0, 1000000]"));
    std::vector<std::unique_ptr<Link>> links;
    links.reserve(count);
    Group root;
    Group* group = &root;
    for (int32 i = 0; i < count; ++i) {
      links.push_back(std::make_unique<Link>());
      if (i > 0) {
        links[i]->parent = links[i - 1].get();
        links[i - 1]->children.push_back(links[i].get());
      }
      group = group->Add();
    }
    int64_t length = 0;
    for (const Link* link = links.empty() ? nullptr : links.front().get(); link != nullptr;
         link = link->children.empty() ? nullptr : link->children.front()) {
      ++length;
    }
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &output));
    output->scalar<int64_t>()() = length;
  }
};

REGISTER_KERNEL_BUILDER(Name("ChainLength").Device(DEVICE_CPU), ChainLengthOp);

}  // namespace tensorflow
