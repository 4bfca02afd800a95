// A thread crashes while the main thread, with a little work of its own, returns.
#include <pthread.h>

static void *crash(void *address) {
    *(volatile int *)address = 1;
    return 0;
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, crash, 0);
    for (volatile unsigned round = 0; round < 90000; round++) {
    }
    return 0;
}
