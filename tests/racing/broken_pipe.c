// A child writes to a pipe whose only reader is about to close it.
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    int ends[2];
    if (pipe(ends)) return 1;
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        _exit(write(ends[1], "x", 1) == 1 ? 0 : 9);
    }
    close(ends[1]);
    for (volatile unsigned round = 0; round < 100000; round++) {
    }
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
