// A child crashes; the parent, with work of its own, looks once whether the child lives, and ends as it found it.
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    pid_t child = fork();
    if (child == 0) *(volatile int *)0 = 1;
    for (volatile unsigned round = 0; round < 300000; round++) {
    }
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == 0) return 3;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : 4;
}
