/* Writes down which memory a program asked for and did not get: a line `malloc 800000000` in NECROPSY_REFUSED for each.
 *
 * Build: `make preload`. It allocates nothing itself. The old symbol version lets the one file load on glibc 2.17 and
 * later, where dlsym may ask for a little memory before it knows whose.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

__asm__(".symver dlsym, dlsym@GLIBC_2.2.5");

static char early[4096];
static size_t taken;

static void *from_early(size_t size) {
  size_t begin = (taken + 15) & ~(size_t)15;
  if (size > sizeof early || begin > sizeof early - size) return 0;
  taken = begin + size;
  return early + begin;
}

static void tell(const char *who, size_t size) {
  const char *path = getenv("NECROPSY_REFUSED");
  char line[48];
  int before = errno, file, end = sizeof line, at = 0;
  if (path && (file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) >= 0) {
    line[--end] = '\n';
    do line[--end] = '0' + size % 10; while (size /= 10);
    line[--end] = ' ';
    while (who[at]) at++;
    while (at) line[--end] = who[--at];
    if (write(file, line + end, sizeof line - end) < 0) { /* nobody to tell */ }
    close(file);
  }
  errno = before;
}

void *malloc(size_t size) {
  static void *(*next)(size_t);
  static int asks;
  if (!next) {
    if (asks) return from_early(size);
    asks = 1;
    next = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
  }
  void *got = next(size);
  if (!got) tell("malloc", size);
  return got;
}

void *calloc(size_t count, size_t size) {
  static void *(*next)(size_t, size_t);
  static int asks;
  if (!next) {
    if (asks) return from_early(count * size); /* it is zero as it is */
    asks = 1;
    next = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "calloc");
  }
  void *got = next(count, size);
  if (!got) tell("calloc", count * size);
  return got;
}

void *realloc(void *block, size_t size) {
  static void *(*next)(void *, size_t);
  if (!next) next = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc");
  void *got = next(block, size);
  if (!got && size) tell("realloc", size);
  return got;
}

void free(void *block) {
  static void (*next)(void *);
  if ((char *)block >= early && (char *)block < early + sizeof early) return;
  if (!next) next = (void (*)(void *))dlsym(RTLD_NEXT, "free");
  next(block);
}
