// Flags: -O0
#include <limits.h>
#include <signal.h>

static volatile int sink;
void divide_by_zero(int by) { sink = 7 / by; }
void modulo_by_zero(int by) { sink = 7 % by; }
void divide_int_min(int by) { volatile int a = INT_MIN; sink = a / by; }
void trap(void) { __builtin_trap(); }
#ifdef __aarch64__
void breakpoint(void) { __asm__ volatile("brk #0"); }
void invalid_opcode(void) { __asm__ volatile(".inst 0xffffffff"); }
void privileged(void) { __asm__ volatile("mrs x0, vbar_el1" ::: "x0"); }
#else
void breakpoint(void) { __asm__ volatile("int3"); }
void invalid_opcode(void) { __asm__ volatile(".byte 0x06"); }  // push %es: there is none in 64-bit mode
void xop_instruction(void) { __asm__ volatile(".byte 0x8f, 0xe9, 0x78, 0x81, 0xc1"); }  // vfrczpd: AMD only, until Zen
void privileged(void) { __asm__ volatile("hlt"); }
#endif
