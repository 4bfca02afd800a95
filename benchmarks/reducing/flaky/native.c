#include <stdlib.h>
#include <sys/random.h>

/* A cache whose eviction races with its readers: in 6 of 10 runs the reader loses. */
struct entry { int key; int *payload; };
static struct entry entries[64];
static int capacity = 64;

void cache_limit(int count) { capacity = count; }

void cache_put(int key, int value)
{
    struct entry *entry = &entries[key % 64];
    entry->key = key + 1;
    entry->payload = malloc(sizeof(int));
    *entry->payload = value;
}

void cache_evict(void)
{
    unsigned char chance = 0;
    if (getrandom(&chance, 1, 0) == 1 && chance < 154)
        for (int i = capacity; i < 64; i++)
            entries[i].payload = NULL;
}

int cache_get(int key)
{
    struct entry *entry = &entries[key % 64];
    return entry->key == key + 1 ? *entry->payload : -1;
}
