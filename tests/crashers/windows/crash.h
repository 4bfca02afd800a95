/* What crash.exe and crash.dll share: each verb is one way to die; the number is its argument. */
#ifndef CRASH_H
#define CRASH_H

#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef void (*Run)(long number);
typedef struct { const char *verb; Run run; } Verb;

/* One table a file, each ended by a row of zeros. */
extern const Verb POINTERS[], STACKS[], SMASHES[], FAST_FAILS[], ABORTS[], EXCEPTIONS[], ARITHMETIC[], HEAPS[], LOADING[],
    FILES[], THREADS[];

/* Calls the verb; returns 0 where it came back, 2 where there is none of that name. */
int crash_now(const char *verb, long number);

/* Runs it on a thread of its own and waits for the thread; `stack` bytes are reserved for it (0: as the program has). */
void on_a_thread(Run run, long number, size_t stack);

#ifdef __cplusplus
}
#endif
#endif
