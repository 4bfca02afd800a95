/* Programs that are executed: most were executed before, and need nothing but a line in the journal. */
#ifndef NECROPSY_EXEC_H
#define NECROPSY_EXEC_H

#include "state.h"

/* Stopped at its exec: 1 where that is to be returned. `tid` is the process's number from now on. */
int on_exec(struct loop *, ref thread, int tid, struct event *out);
/* What the process has executed needs nothing, whoever executes it. */
void remember_ordinary(struct loop *, int pid);

#endif
