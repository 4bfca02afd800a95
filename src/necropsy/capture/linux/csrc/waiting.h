/* Which stop or end comes next. */
#ifndef NECROPSY_WAITING_H
#define NECROPSY_WAITING_H

#include "state.h"

/* The next stop or end, in `info`; its pid is 0 where there is none now, unless `patient`. 0, or -errno. */
long look(struct loop *, int patient, int32_t *info);
/* Until something happens, or until this time. */
void wait_until(struct loop *, uint64_t until, uint64_t time);

#endif
