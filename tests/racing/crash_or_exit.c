// A thread crashes, and the main thread ends the process.
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
    exit(3);
}
