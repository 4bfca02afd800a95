// Flags: -O0
#include <pthread.h>
#include <stddef.h>
#include <unistd.h>

static pthread_barrier_t barrier;
static void *write_null(void *unused) {
  (void)unused;
  pthread_barrier_wait(&barrier);
  *(volatile int *)0 = 1;
  return NULL;
}

void two_threads_crash(void) {
  pthread_t a, b;
  pthread_barrier_init(&barrier, NULL, 2);
  pthread_create(&a, NULL, write_null, NULL);
  pthread_create(&b, NULL, write_null, NULL);
  pthread_join(a, NULL);
  pthread_join(b, NULL);
}

static void *sleeper(void *unused) { (void)unused; sleep(600); return NULL; }
void crash_beside_sleepers(void) {
  pthread_t thread;
  for (int i = 0; i < 50; ++i) pthread_create(&thread, NULL, sleeper, NULL);
  *(volatile int *)0 = 1;
}
