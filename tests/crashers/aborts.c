// Flags: -O0
#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void failed_assert(int rank) { assert(rank == 2 && "rank must be 2"); }
void plain_abort(void) { abort(); }

// As absl and glog do it: the message is put together in memory, written, and still there at abort().
void failed_check(int a, int b) {
  if (a == b) return;
  char *text = malloc(1000);
  snprintf(text, 1000, "F0000 00:00:1763683200.123456 %d tensor_shape.cc:356] Check failed: a == b (%d vs. %d)\n", getpid(), a, b);
  fputs(text, stderr);
  abort();
}
void said_something_then_abort(void) { fprintf(stderr, "E0000 00:00:1763683200.123456 7 log.cc:1] a warning, no cause\n"); abort(); }
