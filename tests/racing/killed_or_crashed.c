// A parent kills a child that is about to crash: of which of the two does it die?
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    pid_t child = fork();
    if (child == 0) {
        for (volatile unsigned round = 0; round < 20000; round++) {
        }
        *(volatile int *)0 = 1;
    }
    for (volatile unsigned round = 0; round < 150000; round++) {
    }
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : 4;
}
