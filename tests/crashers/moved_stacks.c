// Flags: -O0
// Threads that were moved to another stack than their own: a signal's, and a coroutine's.
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { ROOM = 64 << 10, GUARD = 1 << 20 };
static volatile int sink;

static char *new_stack(void) {
  char *low = mmap(NULL, GUARD + ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(low + GUARD, ROOM, PROT_READ | PROT_WRITE);
  return low + GUARD;
}

static int visit(int depth) { char pad[400]; memset(pad, depth, sizeof pad); return visit(depth + 1) + pad[3]; }
static int one_large_local(void) { char a[100 << 10]; memset(a, 1, sizeof a); return a[sink]; }

static void deep_handler(int signal) { sink = visit(signal); }
static void large_handler(int signal) { sink = one_large_local() + signal; }
static void null_handler(int signal) { sink = *(volatile int *)(long)(signal - SIGUSR1); }

static void handle(void (*handler)(int)) {
  stack_t given = {.ss_sp = new_stack(), .ss_size = ROOM};
  sigaltstack(&given, NULL);
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handler;
  action.sa_flags = SA_ONSTACK;
  sigaction(SIGUSR1, &action, NULL);
  raise(SIGUSR1);
}
void recursion_in_handler(void) { handle(deep_handler); }
void large_local_in_handler(void) { handle(large_handler); }
void null_read_in_handler(void) { handle(null_handler); }

#ifdef __aarch64__
void lost_stack(void) { __asm__ volatile("mov x0, 0x100000000\n mov sp, x0\n str x0, [sp, -16]!"); }
#else
void lost_stack(void) { __asm__ volatile("mov $0x123456000, %rsp\n push %rax"); }
#endif

static ucontext_t here, there;
static char *above;

static void work(void) {
  if (above) memcpy(above, &here, sizeof here);
  sink = visit(0);
}
static void in_coroutine(char *stack) {
  getcontext(&there);
  there.uc_stack.ss_sp = stack;
  there.uc_stack.ss_size = ROOM;
  there.uc_link = &here;
  makecontext(&there, work, 0);
  swapcontext(&here, &there);
}
void recursion_in_coroutine(void) { in_coroutine(new_stack()); }

// What lies right above the coroutine's stack holds return addresses of another stack, as a library's variables may.
void recursion_below_variables(void) {
  char *low = mmap(NULL, GUARD + 2 * ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(low + GUARD, ROOM, PROT_READ | PROT_WRITE);
  int file = open("/proc/self/exe", O_RDONLY);
  above = mmap(low + GUARD + ROOM, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file, 0);
  in_coroutine(low + GUARD);
}
