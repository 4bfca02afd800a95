/* Writes down who unmaps memory: a line for each munmap() and dlclose() in NECROPSY_UNMAPPED, with fields between tabs:
 * the call, the size or the library, the library that called, and the line of Python.
 *
 * Build: `make preload`. The old symbol versions let the one file load on glibc 2.17 and later. What malloc gives back
 * does not come through here. While the interpreter itself gives memory back, no object may be made: then its line is
 * left out. Of Python's calls the innermost ones are written, the first one first, with " < " between them.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__asm__(".symver dlsym, dlsym@GLIBC_2.2.5");
__asm__(".symver dladdr, dladdr@GLIBC_2.2.5");

enum { MOST_CALLS = 6 };
static __thread int inside;

static void *of_python(const char *name) { return dlsym(RTLD_DEFAULT, name); }

/* None, behind the outermost frame, has no code. */
static int attribute_exists(void *(*attribute)(void *, const char *), void (*drop)(void *), void *frame) {
  void *code = attribute(frame, "f_code");
  if (code) drop(code);
  return code != 0;
}

static void python_line(char *text, size_t size) {
  int (*initialized)(void) = (int (*)(void))of_python("Py_IsInitialized");
  void *(*state)(void) = (void *(*)(void))of_python("PyGILState_GetThisThreadState");
  int (*ensure)(void) = (int (*)(void))of_python("PyGILState_Ensure");
  void (*release)(int) = (void (*)(int))of_python("PyGILState_Release");
  void *(*frame_of)(void) = (void *(*)(void))of_python("PyEval_GetFrame");
  int (*line_of)(void *) = (int (*)(void *))of_python("PyFrame_GetLineNumber");
  void *(*attribute)(void *, const char *) = (void *(*)(void *, const char *))of_python("PyObject_GetAttrString");
  const char *(*utf8)(void *) = (const char *(*)(void *))of_python("PyUnicode_AsUTF8");
  void (*keep)(void *) = (void (*)(void *))of_python("Py_IncRef");
  void (*drop)(void *) = (void (*)(void *))of_python("Py_DecRef");
  void (*fetch)(void **, void **, void **) = (void (*)(void **, void **, void **))of_python("PyErr_Fetch");
  void (*restore)(void *, void *, void *) = (void (*)(void *, void *, void *))of_python("PyErr_Restore");
  void *frame, *outer, *code, *file, *name, *error[3];
  size_t used = 0;
  int gil, calls;
  if (!initialized || !state || !ensure || !release || !frame_of || !line_of || !attribute || !utf8 || !drop || !keep ||
      !fetch || !restore || !initialized() || !state())
    return;
  gil = ensure();
  fetch(&error[0], &error[1], &error[2]);
  if ((frame = frame_of())) keep(frame);
  for (calls = 0; frame && calls < MOST_CALLS && used < size; calls++) {
    code = attribute(frame, "f_code");
    file = code ? attribute(code, "co_filename") : 0;
    name = code ? attribute(code, "co_name") : 0;
    if (file && name && utf8(file) && utf8(name))
      used += (size_t)snprintf(text + used, size - used, "%s%s:%d in %s", calls ? " < " : "", utf8(file), line_of(frame), utf8(name));
    if (file) drop(file);
    if (name) drop(name);
    if (code) drop(code);
    outer = attribute(frame, "f_back");
    drop(frame);
    frame = outer && attribute_exists(attribute, drop, outer) ? outer : (outer ? (drop(outer), (void *)0) : 0);
  }
  if (frame) drop(frame);
  restore(error[0], error[1], error[2]);
  release(gil);
}

static void tell(const char *call, const char *what, void *caller) {
  const char *path = getenv("NECROPSY_UNMAPPED");
  char line[2048], python[1024] = "";
  void *interpreter = of_python("PyEval_GetFrame");
  Dl_info info = {0}, core = {0};
  int before = errno, file, size;
  if (!path || inside) return;
  inside = 1;
  if (!dladdr(caller, &info)) info.dli_fname = "";
  if (interpreter && dladdr(interpreter, &core) && core.dli_fbase != info.dli_fbase) python_line(python, sizeof python);
  size = snprintf(line, sizeof line, "%s\t%s\t%s\t%s\n", call, what, info.dli_fname ? info.dli_fname : "", python);
  if (size > 0 && size < (int)sizeof line && (file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) >= 0) {
    ssize_t written = write(file, line, (size_t)size);
    (void)written;
    close(file);
  }
  inside = 0;
  errno = before;
}

int munmap(void *address, size_t length) {
  static int (*next)(void *, size_t);
  char size[32];
  if (!next) next = (int (*)(void *, size_t))dlsym(RTLD_NEXT, "munmap");
  snprintf(size, sizeof size, "%zu", length);
  tell("munmap", size, __builtin_return_address(0));
  return next(address, length);
}

int dlclose(void *handle) {
  static int (*next)(void *);
  if (!next) next = (int (*)(void *))dlsym(RTLD_NEXT, "dlclose");
  tell("dlclose", ((struct link_map *)handle)->l_name, __builtin_return_address(0));
  return next(handle);
}
