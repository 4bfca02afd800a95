/* threads sequence N: N threads one after the other. threads alive N: N threads that all live at once, then all end. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int gate[2];

static void *nothing(void *given) { return given; }

static void *until_opened(void *given) {
    char byte;
    return read(gate[0], &byte, 1) == 0 ? given : NULL;
}

static void check(int error, const char *what) {
    if (error) {
        fprintf(stderr, "%s: %s\n", what, strerror(error));
        exit(1);
    }
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    int alive = !strcmp(argv[1], "alive"), count = atoi(argv[2]);
    pthread_t *threads = calloc(count, sizeof *threads);
    void *result;
    if (alive && pipe(gate))
        return 1;
    for (int number = 0; number < count; number++) {
        check(pthread_create(&threads[number], NULL, alive ? until_opened : nothing, &gate), "pthread_create");
        if (!alive)
            check(pthread_join(threads[number], &result), "pthread_join");
    }
    if (alive) {
        close(gate[1]);
        for (int number = 0; number < count; number++) {
            check(pthread_join(threads[number], &result), "pthread_join");
            check(result != &gate, "a thread did not see the gate open");
        }
    }
    return 0;
}
