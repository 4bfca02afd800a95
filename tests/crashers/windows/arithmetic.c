#include "crash.h"

#include <float.h>
#include <limits.h>

static volatile int result;

static void divide_by_zero(long number) { result = 10 / (int)(number * 0); }
static void modulo_by_zero(long number) { result = 10 % (int)(number * 0); }
static void divide_int_min(long number) {
  volatile int smallest = INT_MIN, minus_one = number ? (int)number : -1;
  result = smallest / minus_one;
}
static void trap(long number) { (void)number; __builtin_trap(); }
static void breakpoint(long number) { (void)number; __asm__ volatile("int3"); }
/* The breakpoint stands in ntdll, as that of a debugger that breaks in. */
static void debug_break(long number) { DebugBreak(); result = (int)number; }
static void float_by_zero(long number) {
  volatile double divisor = number * 0.0;
  _controlfp(0, _MCW_EM);
  result = (int)(1.0 / divisor);
}
static void privileged(long number) { (void)number; __asm__ volatile("hlt"); }
static void invalid_opcode(long number) {
  (void)number;
  __asm__ volatile(".byte 0x06");  /* push es: no instruction in 64 bits */
}

const Verb ARITHMETIC[] = {{"divide_by_zero", divide_by_zero},
                           {"modulo_by_zero", modulo_by_zero},
                           {"divide_int_min", divide_int_min},
                           {"trap", trap},
                           {"breakpoint", breakpoint},
                           {"debug_break", debug_break},
                           {"float_by_zero", float_by_zero},
                           {"privileged", privileged},
                           {"invalid_opcode", invalid_opcode},
                           {0, 0}};
