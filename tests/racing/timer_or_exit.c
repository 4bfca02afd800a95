// A timer's signal ends the process, unless the process ends before.
#include <sys/time.h>

#include "by_chance.h"

int main(void) {
    struct itimerval timer = {{0, 0}, {0, 5000}};
    setitimer(ITIMER_REAL, &timer, 0);
    wait_by_chance();
    _exit(6);
}
