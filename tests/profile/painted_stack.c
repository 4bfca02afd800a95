/* How deep a thread's calls really got: its free stack is painted first, and looked at afterwards.
 *
 * Painting touches every page, so a run that is painted is the reference for one that is not. Both say how far below
 * the stack's upper end the first call is; the painted one also how far the deepest byte written is below that. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAINT 0xA5C3A5C3A5C3A5C3u
#define MAIN_ROOM (7u << 20)

static __thread char *first, *low, *deepest;

static int is_main(void) { return getpid() == (pid_t)syscall(SYS_gettid); }

static char *upper_end(void) {
  pthread_attr_t own;
  void *block;
  size_t size;
  if (is_main()) { /* with the arguments and the environment */
    char line[512], *end = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps))
      if (strstr(line, "[stack]")) end = (char *)strtoul(strchr(line, '-') + 1, 0, 16);
    fclose(maps);
    return end;
  }
  pthread_getattr_np(pthread_self(), &own);
  pthread_attr_getstack(&own, &block, &size);
  pthread_attr_destroy(&own);
  return (char *)block + size;
}

/* A frame's own word that a probe or an untouched array does not write. */
void reached(volatile const void *address) {
  if (!deepest || (char *)address < deepest) deepest = (char *)address;
}

__attribute__((noinline)) void begin(int painted) {
  pthread_attr_t own;
  void *block;
  size_t size, guard;
  first = __builtin_frame_address(0);
  deepest = first;
  low = 0;
  if (!painted) return;
  if (is_main()) {
    low = first - MAIN_ROOM;
  } else {
    pthread_getattr_np(pthread_self(), &own);
    pthread_attr_getstack(&own, &block, &size);
    pthread_attr_getguardsize(&own, &guard);
    pthread_attr_destroy(&own);
    low = (char *)block;
  }
  low = (char *)(((uintptr_t)low + 7) & ~(uintptr_t)7);
  for (volatile uint64_t *word = (uint64_t *)((uintptr_t)(first - 512) & ~(uintptr_t)7); (char *)--word >= low;) *word = PAINT;
}

__attribute__((noinline)) void finish(const char *name) {
  if (low) {
    uint64_t *word = (uint64_t *)low;
    while ((char *)word < deepest && *word == PAINT) word++;
    reached(word);
  }
  printf("%s %ld %ld\n", name, (long)(upper_end() - first), (long)(first - deepest));
  fflush(stdout);
}
