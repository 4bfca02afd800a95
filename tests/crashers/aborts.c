// Flags: -O0
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

void failed_assert(int rank) { assert(rank == 2 && "rank must be 2"); }
void plain_abort(void) { abort(); }

void said_something_then_abort(void) { fprintf(stderr, "E0000 00:00:1763683200.123456 7 log.cc:1] a warning, no cause\n"); abort(); }
