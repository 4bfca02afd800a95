// A thread sends SIGTERM to its own process, while the main thread exits.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

static void *send(void *unused) {
    kill(getpid(), SIGTERM);
    return unused;
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, send, 0);
    for (volatile unsigned round = 0; round < 40000; round++) {
    }
    _exit(6);
}
