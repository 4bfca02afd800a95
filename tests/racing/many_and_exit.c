// Eight threads, each of which works for a while and crashes; the main thread has work of its own, and exits.
#include <pthread.h>
#include <stdlib.h>

static void work(unsigned rounds) {
    volatile unsigned sum = 0;
    for (unsigned round = 0; round < rounds; round++) sum += round;
}

static void *crash(void *rounds) {
    work((unsigned)(size_t)rounds);
    *(volatile int *)0 = 1;
    return 0;
}

int main(void) {
    pthread_t thread;
    for (unsigned each = 0; each < 8; each++) pthread_create(&thread, 0, crash, (void *)(size_t)(500000 + 200000 * each));
    work(20000);
    exit(3);
}
