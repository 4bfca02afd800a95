#include "crash.h"

#include <stdlib.h>
#include <string.h>

static void double_free(long number) {
  char *block = malloc(number ? (size_t)number : 64);
  char *volatile again = block;
  free(block);
  free(again);
}
static void overflow(long number) {
  char *one = malloc(64), *other = malloc(64), *third = malloc(64);
  memset(one, 0x41, 64 + (number ? (size_t)number : 64));
  free(other);
  free(third);
  free(one);
  for (int at = 0; at < 100; ++at) free(malloc(64 + 16 * at));
}
/* How Windows' heap ends a process that it finds damaged: wine's does not notice. */
static void raise_corruption(long number) {
  (void)number;
  RaiseException(0xC0000374, EXCEPTION_NONCONTINUABLE, 0, NULL);
}

const Verb HEAPS[] = {{"double_free", double_free}, {"overflow", overflow}, {"raise_corruption", raise_corruption}, {0, 0}};
