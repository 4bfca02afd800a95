#ifndef WORDS_TRIE_OF_WORDS_H_
#define WORDS_TRIE_OF_WORDS_H_

#include <cstdint>
#include <map>
#include <vector>

#include "tensorflow/core/platform/tstring.h"

namespace words {

struct TrieNode {
  std::map<char, size_t> children;
};

class Trie {
 public:
  Trie() : nodes_(1) {}

  void Add(const tensorflow::tstring& word) {
    size_t node = 0;
    for (size_t i = 0; i < word.size(); ++i) {
      const auto found = nodes_[node].children.find(word[i]);
      if (found != nodes_[node].children.end()) {
        node = found->second;
        continue;
      }
      nodes_[node].children[word[i]] = nodes_.size();
      node = nodes_.size();
      nodes_.emplace_back();
    }
  }
  int64_t nodes() const { return static_cast<int64_t>(nodes_.size()) - 1; }

 private:
  std::vector<TrieNode> nodes_;
};

}  // namespace words

#endif  // WORDS_TRIE_OF_WORDS_H_
