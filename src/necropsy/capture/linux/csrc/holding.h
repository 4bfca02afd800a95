/* Stopping all threads of a process. */
#ifndef NECROPSY_HOLDING_H
#define NECROPSY_HOLDING_H

#include "state.h"

/* All threads of a process that is being stopped stand. */
int is_held(const struct loop *, ref process);
/* Stop waiting for it; threads that have stopped stay stopped. */
void end_hold(struct loop *, ref process);
/* Stop all threads that run; without `interrupt` they are only awaited. */
void begin_hold(struct loop *, ref process, int interrupt);
/* The thread stays in this stop. */
void keep_stopped(struct loop *, ref thread, int status);
/* A thread that was left in its stop (`status` of struct thread) gets its ordinary turn. */
void serve_later(struct loop *, ref thread);
/* Where all threads of the process stand, say so, once. */
int report_if_held(struct loop *, ref process, struct event *out);
/* A process whose time for stopping is up, or of which those that still ran have died unseen. */
int report_late(struct loop *, struct event *out, uint64_t time);
/* The threads of a process that are held still go on, or get their ordinary turn. */
void release_others(struct loop *, ref process);
/* One of its threads was let go with a signal that ends the process. The others are killed where they are held, and see
 * nothing of the time that the reading took; if the process lives on after all, they go on a little later. */
void release_later(struct loop *, ref process);
/* They go on now if it is time. */
void release_in_time(struct loop *);

#endif
