// A thread crashes into a handler that ends the process, and the main thread restores the default.
#include <signal.h>

#include "by_chance.h"

static void handle(int number) { _exit(number); }

static void *crash(void *address) {
    begin();
    *(volatile int *)address = 1;
    return 0;
}

int main(void) {
    pthread_t thread;
    signal(SIGSEGV, handle);
    prepare();
    pthread_create(&thread, 0, crash, 0);
    begin();
    signal(SIGSEGV, SIG_DFL);
    for (;;) pause();
}
