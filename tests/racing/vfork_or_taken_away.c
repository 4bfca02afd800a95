// While a vfork(2) child runs in the parent's memory, a thread of the parent takes away what the child uses.
#define _GNU_SOURCE
#include <sys/wait.h>

#include "by_chance.h"

static int object = 5;
static int *volatile current = &object;

static void *take_away(void *unused) {
    begin();
    current = 0;
    return unused;
}

int main(void) {
    pthread_t thread;
    prepare();
    pthread_create(&thread, 0, take_away, 0);
    pid_t child = vfork();
    if (child == 0) {
        begin();
        _exit(*current);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
