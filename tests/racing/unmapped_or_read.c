// A thread reads memory and ends the process; the main thread takes the memory away.
#include <sys/mman.h>

#include "by_chance.h"

static void *use(void *memory) {
    begin();
    _exit(*(volatile char *)memory);
}

int main(void) {
    pthread_t thread;
    char *memory = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    prepare();
    pthread_create(&thread, 0, use, memory);
    begin();
    munmap(memory, 4096);
    for (;;) pause();
}
