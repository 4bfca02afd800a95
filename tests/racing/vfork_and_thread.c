// While a vfork(2) child runs in the parent's memory, another thread of the parent takes away what the child uses.
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static int object = 5;
static int *volatile current = &object;

static void *take_away(void *unused) {
    for (volatile unsigned round = 0; round < 100000; round++) {
    }
    current = 0;
    return unused;
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, take_away, 0);
    pid_t child = vfork();
    if (child == 0) {
        for (volatile unsigned round = 0; round < 100000; round++) {
        }
        _exit(*current);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
