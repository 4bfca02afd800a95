// Flags: -O0
#include <alloca.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

volatile int sink;

int infinite_recursion(int n) { return infinite_recursion(n + 1) + 1; }

int pong(int n);
int ping(int n) { char pad[200]; memset(pad, n, sizeof pad); return pong(n + 1) + pad[3]; }
int pong(int n) { return ping(n + 1) + 1; }
int mutual_recursion(int n) { return ping(n); }

int recursion_with_malloc(int n) {
  char *p = malloc(40);
  *p = (char)n;
  n = recursion_with_malloc(n + 1) + *p;
  free(p);
  return n;
}

int bounded(int n) { return n == 0 ? 0 : bounded(n - 1) + 1; }
int bounded_recursion(int n) { return bounded(n); }

int big_local(void) { char a[16 << 20]; memset(a, 1, sizeof a); return a[sink]; }
int big_alloca(int n) { char *a = alloca(n); memset(a, 1, n); return a[sink]; }
int half_a_megabyte(void) { char a[512 << 10]; memset(a, 1, sizeof a); return a[sink]; }

static void *recurse_on_thread(void *unused) { (void)unused; sink = bounded(10000); return NULL; }
static void *large_on_thread(void *unused) { (void)unused; sink = half_a_megabyte(); return NULL; }

// The guard is larger than any frame here: below it may lie anything, and a frame that leaps over it may hit nothing.
static void on_small_thread(void *(*work)(void *)) {
  pthread_t thread;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN > 64 << 10 ? PTHREAD_STACK_MIN : 64 << 10);
  pthread_attr_setguardsize(&attributes, 1 << 20);
  pthread_create(&thread, &attributes, work, NULL);
  pthread_join(thread, NULL);
}
void recursion_in_small_thread(void) { on_small_thread(recurse_on_thread); }
void large_in_small_thread(void) { on_small_thread(large_on_thread); }

typedef int (*callback)(int);
int bounce(callback back, int n) { return back(n + 1) + 1; }
