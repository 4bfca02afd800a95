// What all libraries of the corpus share: a CHECK as glog prints it, and three ways to reach a function.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <functional>

__attribute__((noinline, noreturn)) inline void check_failed(const char* file, int line, const char* condition, long a, long b) {
  std::fprintf(stderr, "F0000 00:00:1795208908.409686 %s:%d] Check failed: %s (%ld vs. %ld)\n", file, line, condition, a, b);
  std::abort();
}
#define CHECK_OP(a, op, b) \
  do { \
    if (!((a)op(b))) check_failed(__FILE__, __LINE__, #a " " #op " " #b, (long)(a), (long)(b)); \
  } while (0)

// Each bug is reached from a loop over steps, from a task that is handed over, and from a batch that is split first.
#define ROUTES(name, call) \
  extern "C" long name##_step(long n) { \
    long total = 0; \
    for (long step = 0; step < 2; ++step) total += (call) + step; \
    return total; \
  } \
  extern "C" long name##_task(long n) { \
    std::function<long()> task = [n] { return 1 + (call); }; \
    return task() * 2; \
  } \
  static __attribute__((noinline)) long name##_part(long n) { return 3 + 2 * (call); } \
  extern "C" long name##_batch(long n) { return name##_part(n) + name##_part(n + 1); }
