// twin: op-recursive-destructor
// The trie owns all nodes in one vector; a node knows its children by number.
// call: CountPrefixes {"words": ["ab", "abc", "b"]} => 4
// call: CountPrefixes {"words": {"texts": [{"text": "ab", "times": 500000}]}} => 1000000
// call: CountPrefixes {"words": {"zeros": [0], "dtype": "string"}} => 0
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "trie_of_words.h"

namespace tensorflow {

REGISTER_OP("CountPrefixes").Input("words: string").Output("count: int64").SetShapeFn(shape_inference::ScalarShape);

class CountPrefixesOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const auto words = context->input(0).flat<tstring>();
    Tensor* count = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &count));
    words::Trie trie;
    for (int64_t i = 0; i < words.size(); ++i) {
      trie.Add(words(i));
    }
    count->scalar<int64_t>()() = trie.nodes();
  }
};

REGISTER_KERNEL_BUILDER(Name("CountPrefixes").Device(DEVICE_CPU), CountPrefixesOp);

}  // namespace tensorflow
