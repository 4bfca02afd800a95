// The main thread ends by pthread_exit(3), and its destructor aborts, while another thread ends the process.
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static void destroy(void *value) {
    (void)value;
    abort();
}

static void *end(void *unused) {
    (void)unused;
    _exit(5);
}

int main(void) {
    pthread_key_t key;
    pthread_key_create(&key, destroy);
    pthread_setspecific(key, &key);
    pthread_t thread;
    pthread_create(&thread, 0, end, 0);
    pthread_exit(0);
}
