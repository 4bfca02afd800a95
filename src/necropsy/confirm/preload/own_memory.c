/* Lets a program allow itself more memory than it wants to: RLIMIT_AS and RLIMIT_DATA become at least
 * NECROPSY_OWN_MEMORY bytes, where it sets them itself (-1: they are not limited).
 *
 * Build: `make preload`. The old symbol version lets the one file load on glibc 2.17 and later. Where the kernel
 * refuses the larger limit, because the hard one is lower, the program's own is set.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/resource.h>

__asm__(".symver dlsym, dlsym@GLIBC_2.2.5");

typedef int (*set_t)(__rlimit_resource_t, const struct rlimit *);
typedef int (*change_t)(int, __rlimit_resource_t, const struct rlimit *, struct rlimit *);

static const struct rlimit *raised(int kind, const struct rlimit *given, struct rlimit *own) {
  const char *text = getenv("NECROPSY_OWN_MEMORY");
  if (!given || !text || (kind != RLIMIT_AS && kind != RLIMIT_DATA)) return 0;
  rlim_t wanted = text[0] == '-' ? RLIM_INFINITY : strtoull(text, 0, 10);
  *own = *given;
  if (own->rlim_cur < wanted) own->rlim_cur = wanted;
  if (own->rlim_max < wanted) own->rlim_max = wanted;
  return own;
}

int setrlimit(__rlimit_resource_t kind, const struct rlimit *given) {
  static set_t next;
  struct rlimit own;
  const struct rlimit *more = raised(kind, given, &own);
  if (!next) next = (set_t)dlsym(RTLD_NEXT, "setrlimit");
  return more && !next(kind, more) ? 0 : next(kind, given);
}

/* The same on x86-64, where both have 64 bits. */
int setrlimit64(__rlimit_resource_t kind, const struct rlimit64 *given) {
  return setrlimit(kind, (const struct rlimit *)given);
}

int prlimit(__pid_t process, __rlimit_resource_t kind, const struct rlimit *given, struct rlimit *before) {
  static change_t next;
  struct rlimit own;
  const struct rlimit *more = raised(kind, given, &own);
  if (!next) next = (change_t)dlsym(RTLD_NEXT, "prlimit");
  return more && !next(process, kind, more, before) ? 0 : next(process, kind, given, before);
}

int prlimit64(__pid_t process, __rlimit_resource_t kind, const struct rlimit64 *given, struct rlimit64 *before) {
  return prlimit(process, kind, (const struct rlimit *)given, (struct rlimit *)before);
}
