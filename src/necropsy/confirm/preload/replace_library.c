/* Loads another build of one library: dlopen of NECROPSY_REPLACE_FROM opens NECROPSY_REPLACE_TO instead.
 *
 * Build: `make preload`, with -O2, so that the call is a jump: the C library looks for libraries as the caller of
 * dlopen says (its RUNPATH), and finds the caller by the return address, which must be the real caller's.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

__asm__(".symver dlsym, dlsym@GLIBC_2.2.5");
__asm__(".symver realpath, realpath@GLIBC_2.3");

typedef void *(*open_t)(const char *, int);

void *dlopen(const char *file, int mode) {
  static open_t next;
  static __thread char path[4096];
  const char *from = getenv("NECROPSY_REPLACE_FROM"), *to = getenv("NECROPSY_REPLACE_TO");
  if (!next) next = (open_t)dlsym(RTLD_NEXT, "dlopen");
  if (file && from && to && strchr(file, '/') && realpath(file, path) && !strcmp(path, from)) file = to;
  return next(file, mode);
}
