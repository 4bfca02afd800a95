#undef NDEBUG
#include "crash.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void plain_abort(long number) { (void)number; abort(); }
static void failed_assert(long number) { assert(number == 7 && "the batch is not empty"); }
static void check_failed(long number) {
  fprintf(stderr, "2024-05-01 12:00:00.000000: F tensorflow/core/framework/tensor_shape.cc:45] "
                  "Check failed: dims == %ld (2 vs. %ld)\n", number, number);
  fflush(stderr);
  abort();
}
static void part_missing(long number) {
  (void)number;
  fprintf(stderr, "Could not load library cudnn_ops_infer64_8.dll. Error code 126\n"
                  "Please make sure cudnn_ops_infer64_8.dll is in your library path!\n");
  fflush(stderr);
  abort();
}
/* The same, and the C runtime ends as it does on Windows with its error reporting on. */
static void check_failed_fast(long number) {
  fprintf(stderr, "F0000 00:00:1714564800.000000 4711 tensor_shape.cc:45] Check failed: dims == %ld (2 vs. %ld)\n",
          number, number);
  fflush(stderr);
  __asm__ volatile("int $0x29" : : "c"(7ull));
}
static void part_missing_fast(long number) {
  (void)number;
  fprintf(stderr, "Could not load library cudnn_ops_infer64_8.dll. Error code 126\n"
                  "Please make sure cudnn_ops_infer64_8.dll is in your library path!\n");
  fflush(stderr);
  __asm__ volatile("int $0x29" : : "c"(7ull));
}
static void exit_with(long number) { exit((int)number); }
static void end_self(long number) { TerminateProcess(GetCurrentProcess(), (UINT)number); }

/* Another process ends us: a copy of this program that does nothing else. */
static void ended_by_another(long number) {
  char path[MAX_PATH], line[2 * MAX_PATH];
  GetModuleFileNameA(NULL, path, sizeof path);
  snprintf(line, sizeof line, "\"%s\" end_process %lu", path, GetCurrentProcessId());
  STARTUPINFOA start = {sizeof start};
  PROCESS_INFORMATION made;
  (void)number;
  if (!CreateProcessA(NULL, line, NULL, NULL, FALSE, 0, NULL, NULL, &start, &made)) ExitProcess(97);
  Sleep(INFINITE);
}
static void end_process(long number) {
  HANDLE process = OpenProcess(PROCESS_TERMINATE, FALSE, (DWORD)number);
  if (!process || !TerminateProcess(process, 1)) ExitProcess(97);
}

/* Microsoft's current C runtime refuses an argument; MinGW links an older one, so this one is asked for by name. */
static void invalid_parameter(long number) {
  HMODULE runtime = LoadLibraryA("ucrtbase.dll");
  void (*refuse)(void) = (void (*)(void))(size_t)GetProcAddress(runtime, "_invalid_parameter_noinfo_noreturn");
  (void)number;
  if (!refuse) ExitProcess(97);
  refuse();
}
static void ucrt_abort(long number) {
  void (*end)(void) = (void (*)(void))(size_t)GetProcAddress(LoadLibraryA("ucrtbase.dll"), "abort");
  (void)number;
  if (!end) ExitProcess(97);
  end();
}

const Verb ABORTS[] = {{"plain_abort", plain_abort},
                       {"failed_assert", failed_assert},
                       {"check_failed", check_failed},
                       {"part_missing", part_missing},
                       {"check_failed_fast", check_failed_fast},
                       {"part_missing_fast", part_missing_fast},
                       {"exit_with", exit_with},
                       {"end_self", end_self},
                       {"ended_by_another", ended_by_another},
                       {"end_process", end_process},
                       {"invalid_parameter", invalid_parameter},
                       {"ucrt_abort", ucrt_abort},
                       {0, 0}};
