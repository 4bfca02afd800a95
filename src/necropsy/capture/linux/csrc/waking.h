/* A wait for stops and ends that a moment in time or the reader's signal ends. */
#ifndef NECROPSY_WAKING_H
#define NECROPSY_WAKING_H

#include "state.h"

/* Prepare for `wait_or_wake`: once, by the thread that traces. Where that is not possible, `can_wake` stays 0. */
void open_waking(struct loop *);
/* From now on the reader's signal, and the time `until` (ns of the monotonic clock), set `woken`. */
void allow_waking(struct loop *, uint64_t until);
/* No longer: the signal is blocked again. Does nothing where it was not allowed. */
void forbid_waking(struct loop *);
/* waitid(2) for whatever comes next, in `info`; -EINTR as soon as `woken` is set. */
long wait_or_wake(struct loop *, int32_t *info);

#endif
