// A child sends SIGSEGV to its parent, which exits meanwhile.
#include <signal.h>
#include <unistd.h>

int main(void) {
    pid_t parent = getpid();
    if (fork() == 0) {
        kill(parent, SIGSEGV);
        _exit(0);
    }
    for (volatile unsigned round = 0; round < 200000; round++) {
    }
    _exit(7);
}
