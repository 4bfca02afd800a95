/* New threads and processes, and those whose first stop comes before the event of their creator. */
#ifndef NECROPSY_BIRTHS_H
#define NECROPSY_BIRTHS_H

#include "state.h"

/* The log's probe hears this process from now on. */
void tell_probe(const struct loop *, int pid);
/* A process that is known from now on, if it was not; 0 where the table is full. */
ref start_process(struct loop *, int pid);
/* A thread that nobody told of: /proc says whose it is. */
ref adopt(struct loop *, int tid);
/* A new thread stands in its first stop: where its control block lies, and so its stack. */
void note_base(struct loop *, ref thread);
/* 1 where this thread's first stop came before the event of its creator; that is forgotten. */
int take_early(struct loop *, int tid);
/* 1 where the creator of the thread that is to begin now needs no head start: see births.c. */
int begins_at_once(struct loop *);
/* Resume a thread from its first stop, which was waited for, after its creator's head start. */
void begin_later(struct loop *, int tid);
/* The one whose creator has had its head start goes on. */
void begin_in_time(struct loop *);
/* The event of `creator` announces a new thread or process. */
void created(struct loop *, ref creator, int event, int tid, int go_on);
/* Threads whose creator has said nothing for too long: it was killed in the middle. */
void adopt_early(struct loop *, uint64_t time);

#endif
