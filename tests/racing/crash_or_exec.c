// A thread crashes, and the main thread executes another program.
#include "by_chance.h"

static void *crash(void *unused) {
    begin();
    abort();
    return unused;
}

int main(void) {
    pthread_t thread;
    prepare();
    pthread_create(&thread, 0, crash, 0);
    begin();
    execl("/bin/true", "true", (char *)0);
    return 127;
}
