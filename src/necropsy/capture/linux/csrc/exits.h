/* Ends of threads and processes. */
#ifndef NECROPSY_EXITS_H
#define NECROPSY_EXITS_H

#include "state.h"

/* Stopped at its EVENT_EXIT, a thread goes on to its end. */
void let_exit(struct loop *, ref thread);
/* Stopped at its EVENT_EXIT: 1 where that is to be returned. */
int on_exit_stop(struct loop *, ref thread, struct event *out);
/* A thread or process has ended, with this wait status; `peak_rss` in KiB. 1 where there is something to return. */
int on_end(struct loop *, int tid, int status, uint32_t peak_rss, struct event *out);

#endif
