#ifndef DIGITS_ASSERT_IN_HELPER_H_
#define DIGITS_ASSERT_IN_HELPER_H_

#include <cstddef>
#include <cstdint>

namespace digits {

inline bool Parse(const char* text, size_t size, uint64_t* value) {
  *value = 0;
  for (size_t i = 0; i < size; ++i) {
    if (text[i] < '0' || text[i] > '9') return false;
    *value = *value * 10 + static_cast<uint64_t>(text[i] - '0');
  }
  return true;
}

}  // namespace digits

#endif  // DIGITS_ASSERT_IN_HELPER_H_
