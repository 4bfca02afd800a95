// Two sides of a race begin together and go on at moments of their own, some milliseconds apart: what decides is chance,
// and not the microseconds that a thread takes to start.
#include <pthread.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

static pthread_barrier_t both_are_there;

static void wait_by_chance(void) {
    unsigned number = 0;
    if (getrandom(&number, sizeof number, 0) != sizeof number) abort();
    usleep(1000 + number % 8000);
}

// Before the other side is started.
static void prepare(void) { pthread_barrier_init(&both_are_there, 0, 2); }

// In each of two threads.
static void begin(void) {
    pthread_barrier_wait(&both_are_there);
    wait_by_chance();
}
