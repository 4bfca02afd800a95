/* Extends the caller's wait while nothing changes in the only process that is measured: waking up the interpreter
 * ten times a second costs more than reading a few numbers here. */
#ifndef NECROPSY_UNCHANGED_H
#define NECROPSY_UNCHANGED_H

#include "kernel.h"

struct loop;

enum { MOST_RINGS = 64 };

/* What the caller has seen, and how much of it may change; as in c_loop.py. */
struct baseline {
    uint64_t interval; /* ns */
    uint64_t least_resident, most_resident; /* pages */
    uint64_t descriptors;
    int32_t pid, looks; /* how often the wait may be made longer by an interval */
    int32_t least_threads, most_threads;
    uint64_t rings, room; /* rings of page faults (perf_event_open(2)), and the bytes of each */
    const char *ring[MOST_RINGS];
};

/* Time to look, at `time` (ns of the monotonic clock). 1 where nothing has changed: `until` is the next time. */
int is_unchanged(struct loop *, uint64_t time, uint64_t *until);
/* The wait is over. */
void forget_baseline(void);

#endif
