// A thread crashes; the main thread forks, waits for its child, and ends.
#include <sys/wait.h>

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
    pid_t child = fork();
    if (child == 0) _exit(4);
    int status = 0;
    waitpid(child, &status, 0);
    _exit(WEXITSTATUS(status));
}
