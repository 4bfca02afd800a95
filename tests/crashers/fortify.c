// Flags: -O2 -D_FORTIFY_SOURCE=2
#include <stdio.h>
#include <string.h>

static char to[16];
static char from[64];
__attribute__((noinline)) void fortified_memcpy(long n) { memcpy(to, from, n); }
__attribute__((noinline)) void fortified_sprintf(int n) { sprintf(to, "%030d", n); }
