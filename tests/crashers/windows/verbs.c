#include "crash.h"

#include <string.h>

static const Verb *const TABLES[] = {POINTERS,   STACKS, SMASHES, FAST_FAILS, ABORTS, EXCEPTIONS,
                                     ARITHMETIC, HEAPS,  LOADING, FILES,      THREADS};

static const Verb *find(const char *verb) {
  for (size_t table = 0; table < sizeof TABLES / sizeof *TABLES; ++table)
    for (const Verb *row = TABLES[table]; row->verb; ++row)
      if (!strcmp(row->verb, verb)) return row;
  return NULL;
}

__declspec(dllexport) int crash_now(const char *verb, long number) {
  const Verb *row = find(verb);
  if (!row) return 2;
  row->run(number);
  return 0;
}

typedef struct { Run run; long number; } Work;

static DWORD WINAPI work(void *given) {
  Work *its = given;
  its->run(its->number);
  return 0;
}

void on_a_thread(Run run, long number, size_t stack) {
  Work its = {run, number};
  DWORD flags = stack ? STACK_SIZE_PARAM_IS_A_RESERVATION : 0;
  HANDLE thread = CreateThread(NULL, stack, work, &its, flags, NULL);
  if (!thread) ExitProcess(97);
  WaitForSingleObject(thread, INFINITE);
  CloseHandle(thread);
}

/* What Python's ctypes calls: it would swallow an exception on its own thread, so the crash happens on another. */
__declspec(dllexport) int crash_on_a_thread(const char *verb, long number) {
  const Verb *row = find(verb);
  if (!row) return 2;
  on_a_thread(row->run, number, 0);
  return 0;
}
