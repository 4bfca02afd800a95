/* The log's tail in memory that the processes of a run share: what shared_memory.Ring reads. */
#ifndef NECROPSY_RING_H
#define NECROPSY_RING_H

#include "kernel.h"

enum { RING_DATA = 4096 }; /* the offset of the bytes */

struct ring {
    volatile uint64_t total;
    volatile uint32_t busy, missed;
    volatile uint64_t last, begin, number;
};

struct waiting { /* struct pollfd */
    int32_t descriptor;
    int16_t wanted, found;
};

enum { POLLIN = 1, POLLOUT = 4 };

/* The bytes before this many are there, for whoever reads it. */
static inline void tell_total(struct ring *ring, uint64_t total)
{
    __atomic_store_n(&ring->total, total, __ATOMIC_RELEASE);
}

/* ppoll(2) of one of them, for as long as it takes. */
static inline long wait_until_found(struct waiting *waiting)
{
    return call5(SYS_ppoll, (long)waiting, 1, 0, 0, 0);
}

#endif
