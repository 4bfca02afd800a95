#include "crash.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

static volatile long depth;

static long endless(long level) {
  volatile long mine[4] = {level};
  depth = level;
  return endless(level + 1) + mine[0];
}
static void recursion(long number) { depth = endless(number); }

static long pong(long level);
static long ping(long level) {
  volatile long mine[2] = {level};
  return pong(level + 1) + mine[0];
}
static long pong(long level) {
  volatile long mine[6] = {level};
  depth = level;
  return ping(level + 1) + mine[0];
}
static void mutual_recursion(long number) { depth = ping(number); }

static long allocating(long level) {
  char *block = malloc(24);
  block[0] = (char)level;
  long sum = allocating(level + 1) + block[0];
  free(block);
  return sum;
}
static void recursion_with_malloc(long number) { depth = allocating(number); }

static long bounded(long level) {
  volatile long mine[4] = {level};
  return level ? bounded(level - 1) + mine[0] : 0;
}
static void bounded_recursion(long number) { depth = bounded(number ? number : 1000); }

static void huge_frame(long number) {
  volatile char table[16 << 20];
  table[number] = 1;
  depth = table[number + 1];
}
static void huge_alloca(long number) {
  volatile char *table = alloca(number ? (size_t)number : 16u << 20);
  table[0] = 1;
  depth = table[0];
}
/* 100 levels of 16 KiB: they fit into the 2 MiB of the first thread. A thread gets a megabyte at least under wine. */
static long nested(long level) {
  volatile char page[16 << 10];
  page[0] = (char)level;
  return level ? nested(level - 1) + page[0] : 0;
}
static void hundred_levels(long number) { depth = nested(number ? number : 100); }
static void small_thread(long number) { on_a_thread(hundred_levels, number, 64 << 10); }
static void recursion_in_thread(long number) { on_a_thread(recursion, number, 0); }
static void recursion_in_small_thread(long number) { on_a_thread(bounded_recursion, number ? number : 20000, 64 << 10); }

static void *(*volatile fill)(void *, int, size_t) = memset;

/* The return address itself: no protector looks at it. */
static void overrun_unseen(long count) {
  char name[16];
  fill(name, 'A', (size_t)count);
  depth = name[0];
}
static void return_to_garbage(long number) { overrun_unseen(number ? number : 64); }

const Verb STACKS[] = {{"recursion", recursion},
                       {"mutual_recursion", mutual_recursion},
                       {"recursion_with_malloc", recursion_with_malloc},
                       {"bounded_recursion", bounded_recursion},
                       {"huge_frame", huge_frame},
                       {"huge_alloca", huge_alloca},
                       {"hundred_levels", hundred_levels},
                       {"small_thread", small_thread},
                       {"recursion_in_thread", recursion_in_thread},
                       {"recursion_in_small_thread", recursion_in_small_thread},
                       {"return_to_garbage", return_to_garbage},
                       {0, 0}};
