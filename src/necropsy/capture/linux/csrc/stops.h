/* One stop of a traced thread. */
#ifndef NECROPSY_STOPS_H
#define NECROPSY_STOPS_H

#include "state.h"

/* Serve a stop: `status` is event << 8 | signal. `consumed`: the kernel has forgotten it already. 1 where there is
 * something to return in `out`. */
int on_stop(struct loop *, int tid, int status, int consumed, struct event *out);

#endif
