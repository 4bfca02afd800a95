// Flags: -O0
#include <signal.h>
#include <unistd.h>

static void leave(int signo) { (void)signo; _exit(7); }

// A program that catches its own fault and leaves with a number.
void handled_by_exit(void) {
  signal(SIGSEGV, leave);
  *(volatile int *)0 = 1;
}
