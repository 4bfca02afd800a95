// A lock's owner starts a thread, then lets go of what the thread uses: the thread dies if the owner was faster.
// CPython before 3.12 is such a program: native code that calls it without the GIL dies only while nobody holds the GIL.
#include <pthread.h>
#include <unistd.h>

static int object = 1;
static int *volatile current = &object;

static void *use(void *unused) {
    (void)unused;
    _exit(*current - 1);
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, use, 0);
    current = 0;
    sleep(5);
    return 2;
}
