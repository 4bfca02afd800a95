/* The address space: slots of five sizes. Which is free is all that needs a lock. */
#include "guard.h"

/* Bytes of a slot, and how many there are. A block takes at most a slot without its two forbidden pages; of the
 * smallest, half, so that an access far beyond the end does not hit the next block. */
static const struct {
    uint64_t slot_size, slots, keeps;
} SIZES[CLASSES] = {
    {16UL << 10, 16384, 0}, {128UL << 10, 4096, 1}, {2UL << 20, 2048, 1}, {64UL << 20, 1024, 1}, {4UL << 30, 64, 1}};
/* The smallest has four of them at least. */
enum { LEAST_PAGES = 4 };

enum { MAPPINGS = 65530, MAPPINGS_OF_A_BLOCK = 4 };

static int lock; /* the process that holds it; 0: free */

/* A child that was forked while another thread held the lock has no such thread: there, it holds another process. */
static void take_lock(void)
{
    int own = (int)call1(SYS_getpid, 0);
    for (;;) {
        int holder = 0;
        if (__atomic_compare_exchange_n(&lock, &holder, own, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return;
        if (holder != own && __atomic_compare_exchange_n(&lock, &holder, own, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return;
        call1(SYS_sched_yield, 0);
    }
}

static void release_lock(void)
{
    __atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
}

/* How many mappings the kernel allows this process (vm.max_map_count). */
static uint64_t mappings(void)
{
    char text[24];
    long file = call4(SYS_openat, -100, (long)"/proc/sys/vm/max_map_count", 0, 0);
    if (failed(file))
        return MAPPINGS;
    long size = call3(SYS_read, file, (long)text, sizeof text);
    call1(SYS_close, file);
    uint64_t number = 0;
    for (long at = 0; at < size && text[at] >= '0' && text[at] <= '9'; at++)
        number = number * 10 + (uint64_t)(text[at] - '0');
    return number ? number : MAPPINGS;
}

void prepare_slots(void)
{
    guard.most_live = mappings() / MAPPINGS_OF_A_BLOCK; /* each takes two; the program has the other half */
    guard.most_plain = guard.most_live / 2;
    for (int at = 0; at < CLASSES; at++) {
        struct class *one = &guard.classes[at];
        uint64_t least = LEAST_PAGES * page_size(), slot_size = SIZES[at].slot_size < least ? least : SIZES[at].slot_size;
        uint64_t size = slot_size * SIZES[at].slots;
        long low = call6(SYS_mmap, 0, (long)size, NO_ACCESS, PRIVATE_ANONYMOUS_NORESERVE, -1, 0);
        struct record *records = reserve(SIZES[at].slots * sizeof *records);
        uint32_t *queue = reserve(SIZES[at].slots * sizeof *queue);
        if (failed(low) || !records || !queue)
            continue; /* a limit on address space: blocks of this size are not guarded */
        one->slot_size = slot_size;
        one->slots = SIZES[at].slots;
        one->records = records;
        one->queue = queue;
        one->keeps = SIZES[at].keeps;
        one->low = (uint64_t)low;
    }
}

static struct class *class_for(size_t size)
{
    for (int at = 0; at < CLASSES; at++) {
        struct class *one = &guard.classes[at];
        uint64_t most = at ? one->slot_size - 2 * page_size() : one->slot_size / 2;
        if (one->low && size <= most)
            return one;
    }
    return NULL;
}

struct record *take_slot(size_t size, struct class **of)
{
    struct class *one = *of = class_for(size);
    struct record *found = NULL;
    if (!one || __atomic_load_n(&guard.live, __ATOMIC_RELAXED) >= guard.most_live)
        return NULL;
    take_lock();
    int has_freed = one->head != one->tail;
    int again = one->keeps && has_freed && __atomic_load_n(&guard.kept, __ATOMIC_RELAXED) > KEPT;
    if (one->fresh < one->slots && !again) {
        found = &one->records[one->fresh];
        one->fresh++;
    } else if (has_freed) {
        found = &one->records[one->queue[one->head % one->slots]];
        one->head++;
    }
    release_lock();
    if (found)
        __atomic_fetch_sub(&guard.kept, found->kept, __ATOMIC_RELAXED);
    return found;
}

void give_slot_back(struct class *of, struct record *record)
{
    __atomic_fetch_add(&guard.kept, record->kept, __ATOMIC_RELAXED);
    take_lock();
    of->queue[of->tail % of->slots] = (uint32_t)(record - of->records);
    __atomic_store_n(&of->tail, of->tail + 1, __ATOMIC_RELEASE); /* last: a fork in between loses the slot, no more */
    release_lock();
}

struct class *class_of(const void *address)
{
    for (int at = 0; at < CLASSES; at++) {
        struct class *one = &guard.classes[at];
        if ((uint64_t)address - one->low < one->slot_size * one->slots)
            return one;
    }
    return NULL;
}

char *slot_of(const struct class *of, const struct record *record)
{
    return (char *)(of->low + (uint64_t)(record - of->records) * of->slot_size);
}

struct record *record_of(const void *address, struct class **of)
{
    struct class *one = *of = class_of(address);
    return one ? &one->records[((uint64_t)address - one->low) / one->slot_size] : NULL;
}
