// A thread crashes into a handler that restores the default and raises again, as faulthandler's does; another exits.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

static void handle(int number) {
    static const char said[] = "Fatal error\n";
    (void)!write(2, said, sizeof said - 1);
    signal(number, SIG_DFL);
    raise(number);
}

static void *crash(void *address) {
    *(volatile int *)address = 1;
    return 0;
}

int main(void) {
    signal(SIGSEGV, handle);
    pthread_t thread;
    pthread_create(&thread, 0, crash, 0);
    for (volatile unsigned round = 0; round < 100000; round++) {
    }
    _exit(8);
}
