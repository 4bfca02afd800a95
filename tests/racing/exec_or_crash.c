// A thread crashes while the main thread executes another program.
#include <pthread.h>
#include <unistd.h>

static void *crash(void *address) {
    *(volatile int *)address = 1;
    return 0;
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, crash, 0);
    execl("/bin/true", "true", (char *)0);
    return 127;
}
