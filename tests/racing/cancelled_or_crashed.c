// A thread crashes, and the main thread cancels it.
#include "by_chance.h"

static void *crash(void *address) {
    begin();
    *(volatile int *)address = 1;
    return 0;
}

int main(void) {
    pthread_t thread;
    prepare();
    pthread_create(&thread, 0, crash, 0);
    begin();
    pthread_cancel(thread);
    pthread_join(thread, 0);
    return 0;
}
