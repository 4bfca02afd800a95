#include "crash.h"

/* What __fastfail(code) of Microsoft's compiler is: the code in rcx, and int 29h. */
static void fast_fail(long code) {
  __asm__ volatile("int $0x29" : : "c"((unsigned long long)(unsigned long)code));
}

/* As compilers give it: it is inlined, and the function that asked for it is its caller. */
static inline __attribute__((always_inline)) void __fastfail(unsigned code) {
  __asm__ volatile("int $0x29" : : "c"((unsigned long long)code));
}
static void check_index(long number) { __fastfail(number ? (unsigned)number : 8); }

static void raise_fail_fast(long number) { (void)number; RaiseFailFastException(NULL, NULL, 0); }

/* With a record of its own, as WinRT and .NET call it. */
static void raise_fail_fast_record(long code) {
  EXCEPTION_RECORD record = {0};
  record.ExceptionCode = code ? (DWORD)code : 0xC000027B;
  record.ExceptionFlags = EXCEPTION_NONCONTINUABLE;
  RaiseFailFastException(&record, NULL, 1);
}

const Verb FAST_FAILS[] = {
    {"fast_fail", fast_fail}, {"check_index", check_index}, {"raise_fail_fast", raise_fail_fast}, {"raise_fail_fast_record", raise_fail_fast_record},
    {0, 0}};
