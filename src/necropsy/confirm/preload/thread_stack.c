/* Gives every new thread a stack of at least NECROPSY_THREAD_STACK bytes, whatever size its creator asked for.
 *
 * Build: `make preload`. The old symbol versions let the one file load on glibc 2.17 and later, on machines
 * without a compiler. A thread whose creator brings the memory for its stack keeps it: that cannot be made larger.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

__asm__(".symver dlsym, dlsym@GLIBC_2.2.5");
__asm__(".symver pthread_attr_init, pthread_attr_init@GLIBC_2.2.5");
__asm__(".symver pthread_attr_getstack, pthread_attr_getstack@GLIBC_2.2.5");
__asm__(".symver pthread_attr_getstacksize, pthread_attr_getstacksize@GLIBC_2.2.5");
__asm__(".symver pthread_attr_setstacksize, pthread_attr_setstacksize@GLIBC_2.2.5");

typedef int (*create_t)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

int pthread_create(pthread_t *thread, const pthread_attr_t *given, void *(*start)(void *), void *argument) {
  static create_t next;
  if (!next) next = (create_t)dlsym(RTLD_NEXT, "pthread_create");
  const char *text = getenv("NECROPSY_THREAD_STACK");
  size_t wanted = text ? strtoull(text, 0, 10) : 0, size = 0;
  pthread_attr_t own;
  void *address = 0;
  if (!wanted) return next(thread, given, start, argument);
  if (!given) {
    if (pthread_attr_init(&own)) return next(thread, given, start, argument);
  } else {
    own = *given; /* never destroyed here: what it points to belongs to the caller */
    /* glibc gives the end of the stack as its address: NULL minus the size where none was brought */
    if (!pthread_attr_getstack(&own, &address, &size) && (char *)address + size != 0) {
      return next(thread, given, start, argument);
    }
  }
  if (!pthread_attr_getstacksize(&own, &size) && size >= wanted) return next(thread, given, start, argument);
  if (pthread_attr_setstacksize(&own, wanted)) return next(thread, given, start, argument);
  return next(thread, &own, start, argument);
}
