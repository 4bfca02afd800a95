/* signals handled N: N handled SIGUSR1. signals faults N: N handled SIGSEGV, as a write barrier makes them. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static volatile sig_atomic_t handled;
static volatile char *page;
static long page_size;

static void count(int number) {
    (void)number;
    handled++;
}

static void open_page(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    if (info->si_addr != page || mprotect((void *)page, page_size, PROT_READ | PROT_WRITE))
        _exit(3);
    handled++;
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    int faults = !strcmp(argv[1], "faults"), times = atoi(argv[2]);
    struct sigaction action = {0};
    page_size = sysconf(_SC_PAGESIZE);
    if (faults) {
        page = mmap(NULL, page_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED)
            return 1;
        action.sa_flags = SA_SIGINFO;
        action.sa_sigaction = open_page;
    } else
        action.sa_handler = count;
    sigaction(faults ? SIGSEGV : SIGUSR1, &action, NULL);
    for (int number = 0; number < times; number++) {
        if (!faults)
            kill(getpid(), SIGUSR1);
        else {
            page[0] = 1;
            mprotect((void *)page, page_size, PROT_READ);
        }
    }
    if (handled != times)
        fprintf(stderr, "%d of %d signals were handled\n", (int)handled, times);
    return handled != times;
}
