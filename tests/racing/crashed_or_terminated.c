// A child crashes, and its parent asks it to end: of which of the two does it die?
#include <signal.h>
#include <sys/wait.h>

#include "by_chance.h"

int main(void) {
    int ready[2];
    char word;
    if (pipe(ready)) return 1;
    pid_t child = fork();
    if (child == 0) {
        if (write(ready[1], "x", 1) != 1) _exit(1);
        wait_by_chance();
        *(volatile int *)0 = 1;
    }
    if (read(ready[0], &word, 1) != 1) return 1;
    wait_by_chance();
    kill(child, SIGTERM);
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
