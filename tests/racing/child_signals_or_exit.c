// A child sends SIGSEGV to its parent, which ends.
#include <signal.h>

#include "by_chance.h"

int main(void) {
    int ready[2];
    char word;
    pid_t parent = getpid();
    if (pipe(ready)) return 1;
    if (fork() == 0) {
        if (write(ready[1], "x", 1) != 1) _exit(1);
        wait_by_chance();
        kill(parent, SIGSEGV);
        _exit(0);
    }
    if (read(ready[0], &word, 1) != 1) return 1;
    wait_by_chance();
    _exit(7);
}
