#ifndef DIGITS_ASSERT_IN_HELPER_H_
#define DIGITS_ASSERT_IN_HELPER_H_

#include <cassert>
#include <cstddef>
#include <cstdint>

namespace digits {

inline uint64_t Parse(const char* text, size_t size) {
  uint64_t value = 0;
  for (size_t i = 0; i < size; ++i) {
    assert(text[i] >= '0' && text[i] <= '9');  // expect: op-check-on-input
    value = value * 10 + static_cast<uint64_t>(text[i] - '0');
  }
  return value;
}

}  // namespace digits

#endif  // DIGITS_ASSERT_IN_HELPER_H_
