#ifndef WORDS_TRIE_OF_WORDS_H_
#define WORDS_TRIE_OF_WORDS_H_

#include <cstdint>
#include <map>
#include <memory>

#include "tensorflow/core/platform/tstring.h"

namespace words {

class TrieNode {  // expect: op-recursive-destructor
 public:
  TrieNode* ChildFor(char letter, int64_t* nodes) {
    std::unique_ptr<TrieNode>& child = children_[letter];
    if (child == nullptr) {
      child = std::make_unique<TrieNode>();
      ++*nodes;
    }
    return child.get();
  }

 private:
  std::map<char, std::unique_ptr<TrieNode>> children_;
};

class Trie {
 public:
  void Add(const tensorflow::tstring& word) {
    TrieNode* node = &root_;
    for (size_t i = 0; i < word.size(); ++i) {
      node = node->ChildFor(word[i], &nodes_);
    }
  }
  int64_t nodes() const { return nodes_; }

 private:
  TrieNode root_;
  int64_t nodes_ = 0;
};

}  // namespace words

#endif  // WORDS_TRIE_OF_WORDS_H_
