// A child writes to a pipe, whose only reader closes it.
#include <sys/wait.h>

#include "by_chance.h"

int main(void) {
    int ready[2], pipes[2];
    char word;
    if (pipe(ready) || pipe(pipes)) return 1;
    pid_t child = fork();
    if (child == 0) {
        close(pipes[0]);
        if (write(ready[1], "x", 1) != 1) _exit(1);
        wait_by_chance();
        _exit(write(pipes[1], "x", 1) == 1 ? 0 : 9);
    }
    close(pipes[1]);
    if (read(ready[0], &word, 1) != 1) return 1;
    wait_by_chance();
    close(pipes[0]);
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
