/* What was served, in order, for the caller to read. */
#ifndef NECROPSY_JOURNAL_H
#define NECROPSY_JOURNAL_H

#include "state.h"

/* A new record, with nothing but this and the time. There is room: `necropsy_next` returns before there is none. */
struct record *record(struct loop *, int kind, int tid, int pid);
struct record *finished(struct loop *, int tid, int pid, int status, const struct process *);

#endif
