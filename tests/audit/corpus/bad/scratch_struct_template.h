#pragma once

#define SMOOTH_ROWS 1024
#define SMOOTH_COLUMNS (SMOOTH_ROWS * 3)

namespace smooth {

template <typename T, int kRows, int kColumns>
struct Scratch {
  T cells[kRows * kColumns];
};

}  // namespace smooth
