/* Collects the constants that a library compares values with: the functions that a build with -fsanitize-coverage=trace-cmp
 * calls before each comparison (https://clang.llvm.org/docs/SanitizerCoverage.html#tracing-data-flow).
 *
 * They are hidden, so that the library calls these and not those of the sanitizer's runtime. The table is shared with the
 * process that proposes the calls: the number of constants, and the constants. Threads may lose an entry to each other.
 */
#include <stdint.h>

#define MOST 255
#define SLOTS 4096
#define HIDDEN extern "C" __attribute__((visibility("hidden")))

static uint64_t *table;
static uint64_t seen[SLOTS];

extern "C" __attribute__((visibility("default"))) void necropsy_comparisons_use(uint64_t *shared) { table = shared; }

static void note(int64_t value) {
  if (!table || (value >= -16 && value <= 16)) return; /* tried in any case */
  uint64_t bits = (uint64_t)value, slot = (bits * 0x9E3779B97F4A7C15u) >> 52;
  if (seen[slot] == bits) return;
  seen[slot] = bits;
  uint64_t many = table[0];
  if (many >= MOST) return;
  for (uint64_t at = 1; at <= many; at++)
    if (table[at] == bits) return;
  table[many + 1] = bits;
  table[0] = many + 1;
}

HIDDEN void __sanitizer_cov_trace_const_cmp1(uint8_t constant, uint8_t) { note((int8_t)constant); }
HIDDEN void __sanitizer_cov_trace_const_cmp2(uint16_t constant, uint16_t) { note((int16_t)constant); }
HIDDEN void __sanitizer_cov_trace_const_cmp4(uint32_t constant, uint32_t) { note((int32_t)constant); }
HIDDEN void __sanitizer_cov_trace_const_cmp8(uint64_t constant, uint64_t) { note((int64_t)constant); }

/* cases: how many, the bits of each, and the constants. */
HIDDEN void __sanitizer_cov_trace_switch(uint64_t, uint64_t *cases) {
  for (uint64_t at = 0; at < cases[0] && at < MOST; at++) {
    uint64_t unused = 64 - (cases[1] ? cases[1] : 64);
    note((int64_t)(cases[at + 2] << unused) >> unused);
  }
}

/* Called for each function in a build by clang. */
HIDDEN void __sanitizer_cov_trace_pc_guard(uint32_t *) {}
HIDDEN void __sanitizer_cov_trace_pc_guard_init(uint32_t *, uint32_t *) {}

/* Neither side is a constant. */
HIDDEN void __sanitizer_cov_trace_cmp1(uint8_t, uint8_t) {}
HIDDEN void __sanitizer_cov_trace_cmp2(uint16_t, uint16_t) {}
HIDDEN void __sanitizer_cov_trace_cmp4(uint32_t, uint32_t) {}
HIDDEN void __sanitizer_cov_trace_cmp8(uint64_t, uint64_t) {}
HIDDEN void __sanitizer_cov_trace_cmpf(float, float) {}
HIDDEN void __sanitizer_cov_trace_cmpd(double, double) {}
