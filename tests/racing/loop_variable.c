// Each of four threads is given the address of the loop's own variable; one that reads it too late aborts.
#include <pthread.h>
#include <stdlib.h>

static unsigned seen[4];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *mark(void *index) {
    unsigned mine = *(volatile unsigned *)index;
    pthread_mutex_lock(&lock);
    if (mine > 3 || seen[mine]++) abort();
    pthread_mutex_unlock(&lock);
    return 0;
}

int main(void) {
    pthread_t threads[4];
    for (unsigned each = 0; each < 4; each++) pthread_create(&threads[each], 0, mark, &each);
    for (unsigned each = 0; each < 4; each++) pthread_join(threads[each], 0);
    return 0;
}
