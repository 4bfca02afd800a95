#include "crash.h"

static volatile LONG ready;

static void write_null(long number) {
  InterlockedIncrement(&ready);
  while (ready < 2) YieldProcessor();
  *(volatile int *)(number * 0) = 1;
}
static DWORD WINAPI one_of_two(void *nothing) {
  (void)nothing;
  write_null(0);
  return 0;
}
static void two_threads(long number) {
  HANDLE threads[2];
  (void)number;
  for (int at = 0; at < 2; ++at) threads[at] = CreateThread(NULL, 0, one_of_two, NULL, 0, NULL);
  WaitForMultipleObjects(2, threads, TRUE, INFINITE);
}

static DWORD WINAPI sleeper(void *nothing) {
  (void)nothing;
  InterlockedIncrement(&ready);
  Sleep(INFINITE);
  return 0;
}
static void read_null_here(long number) { ready = *(volatile int *)(number * 0); }
static void beside_sleepers(long number) {
  for (int at = 0; at < 20; ++at) CreateThread(NULL, 0, sleeper, NULL, 0, NULL);
  while (ready < 20) Sleep(1);
  read_null_here(number);
}
static void in_thread(long number) { on_a_thread(read_null_here, number, 0); }

/* A first-chance exception that is handled, and a healthy end. */
static LONG CALLBACK mend(EXCEPTION_POINTERS *exception) {
  if (exception->ExceptionRecord->ExceptionCode != 0xE0000077) return EXCEPTION_CONTINUE_SEARCH;
  return EXCEPTION_CONTINUE_EXECUTION;
}
static void handled(long number) {
  (void)number;
  AddVectoredExceptionHandler(1, mend);
  for (int at = 0; at < 10; ++at) RaiseException(0xE0000077, 0, 0, NULL);
}

const Verb THREADS[] = {{"two_threads", two_threads},
                        {"beside_sleepers", beside_sleepers},
                        {"in_thread", in_thread},
                        {"handled", handled},
                        {0, 0}};
