/* Where a block was allocated or freed. */
#include "guard.h"

enum { FAULT = 14, NO_SUCH_WAY = -1 };

/* The kernel reads the set of signals before it refuses the unknown way of changing them: nothing is changed. */
static int is_readable(uint64_t address)
{
    return call4(SYS_rt_sigprocmask, NO_SUCH_WAY, (long)address, 0, 8) != -FAULT;
}

/* The stack's end is not known: it may be a thread's, a coroutine's or one for signals. So each page is asked for. */
static size_t readable_part(uint64_t low, size_t size)
{
    uint64_t page = page_of(low) + page_size();
    while (page < low + size && is_readable(page))
        page += page_size();
    return page < low + size ? page - low : size;
}

__attribute__((noinline)) void note_place(struct place *place, uint8_t *stack, size_t size)
{
    NOTE_REGISTERS(&place->registers);
    place->thread = (uint64_t)call1(SYS_gettid, 0);
    place->size = readable_part(place->registers.stack, size);
    copy_bytes(stack, (const void *)place->registers.stack, place->size);
}
