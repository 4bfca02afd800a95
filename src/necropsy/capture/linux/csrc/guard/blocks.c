/* Guarded blocks: laid out, filled, checked, and taken away. */
#include "guard.h"

static void fill(char *from, const char *to, int byte)
{
    while (from < to)
        *from++ = (char)byte;
}

/* The pages that a block uses, [*low, *high), and its own first byte. */
static char *lay_out(const struct class *of, const struct record *record, size_t size, size_t alignment, char **low,
                     char **high)
{
    char *slot = slot_of(of, record);
    if (guard.begin) {
        *low = slot + page_size();
        *high = *low + pages_of(size);
        return *low;
    }
    *high = slot + of->slot_size - page_size();
    char *block = (char *)(((uint64_t)*high - size) & ~(uint64_t)(alignment - 1));
    *low = (char *)page_of((uint64_t)block);
    return block;
}

void *allocate_guarded(size_t size, size_t alignment, int zeroed)
{
    struct class *of;
    char *low, *high;
    struct record *record = take_slot(size, &of);
    if (!record) {
        __atomic_fetch_add(&guard.unplaced, 1, __ATOMIC_RELAXED);
        return NULL;
    }
    char *block = lay_out(of, record, size, alignment, &low, &high);
    if (low < high && failed(call3(SYS_mprotect, (long)low, high - low, READ_WRITE))) {
        __atomic_fetch_add(&guard.unplaced, 1, __ATOMIC_RELAXED);
        give_slot_back(of, record);
        return NULL;
    }
    if (zeroed && record->kept)
        clear_bytes(block, size);
    else if (!zeroed && guard.fill >= 0)
        fill(block, block + size, guard.fill);
    record->pattern = guard.pattern;
    fill(low, block, (int)record->pattern);
    fill(block + size, high, (int)record->pattern);
    record->address = (uint64_t)block;
    record->size = size;
    record->alignment = (uint32_t)alignment;
    note_place(&record->allocated, record->allocated_stack, sizeof record->allocated_stack);
    __atomic_fetch_add(&guard.guarded, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&guard.live, 1, __ATOMIC_RELAXED);
    if (alignment <= LEAST_ALIGNMENT)
        __atomic_fetch_add(&guard.plain, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&record->state, LIVE, __ATOMIC_RELEASE);
    return block;
}

/* The pattern before or behind a block; complains where a byte of it has changed. */
static void check(const struct record *record, const char *from, const char *to, enum complaint_kind kind)
{
    const char pattern = (char)record->pattern;
    while (from < to && *from == pattern)
        from++;
    if (from == to)
        return;
    while (to[-1] == pattern)
        to--;
    complain(kind, record, from, (size_t)(to - from));
}

/* The pages of a freed block may not be used any more. */
static void take_away(const struct class *of, struct record *record, const char *low, size_t size)
{
    const uint64_t kept = __atomic_load_n(&guard.kept, __ATOMIC_RELAXED);
    if (of->keeps && size < KEPT / 4 && kept < 2 * KEPT && !failed(call3(SYS_mprotect, (long)low, (long)size, NO_ACCESS))) {
        record->kept = size > record->kept ? size : record->kept;
        return;
    }
    /* A new mapping in place of the slot's: the memory is given back, and the kernel joins it with its neighbours. */
    const long flags = PRIVATE_ANONYMOUS_NORESERVE | FIXED;
    const char *slot = slot_of(of, record);
    const char *from = record->kept ? slot : low;
    const size_t bytes = record->kept ? of->slot_size : size;
    if (bytes && failed(call6(SYS_mmap, (long)from, (long)bytes, NO_ACCESS, flags, -1, 0)))
        call3(SYS_mprotect, (long)low, (long)size, NO_ACCESS);
    record->kept = 0;
}

void free_guarded(void *address, struct class *of, struct record *record)
{
    uint32_t live = LIVE;
    if ((uint64_t)address != record->address || record->state == NEVER_USED)
        complain(NOT_A_BLOCK, record, address, 0);
    if (!__atomic_compare_exchange_n(&record->state, &live, FREED, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        complain(FREED_TWICE, record, address, 0);
    /* Not by lay_out: `begin` may have been set since. */
    char *block = address, *low = (char *)page_of((uint64_t)block);
    char *high = (char *)pages_of((uint64_t)block + record->size);
    check(record, block + record->size, high, OVERWRITTEN_AFTER);
    check(record, low, block, OVERWRITTEN_BEFORE);
    note_place(&record->freed, record->freed_stack, sizeof record->freed_stack);
    take_away(of, record, low, (size_t)(high - low));
    __atomic_fetch_sub(&guard.live, 1, __ATOMIC_RELAXED);
    if (record->alignment <= LEAST_ALIGNMENT)
        __atomic_fetch_sub(&guard.plain, 1, __ATOMIC_RELAXED);
    give_slot_back(of, record);
}
