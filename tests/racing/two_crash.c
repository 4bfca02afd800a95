// Two threads wait for each other; then one divides by zero, and the other writes to a null pointer
// after some microseconds.
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

static atomic_int ready;
static volatile int zero;

static void meet(void) {
    ready++;
    while (ready < 2) {
    }
}

static void *divide(void *unused) {
    (void)unused;
    meet();
    return (void *)(size_t)(7 / zero);
}

static void *write_null(void *address) {
    meet();
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    for (volatile long round = now.tv_nsec % 2000; round > 0; round--) {
    }
    *(volatile int *)address = 1;
    return 0;
}

int main(void) {
    pthread_t threads[2];
    pthread_create(&threads[0], 0, divide, 0);
    pthread_create(&threads[1], 0, write_null, 0);
    for (;;) pause();
}
