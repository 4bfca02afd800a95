/* The log probe's members, for loops in C. */
#ifndef NECROPSY_PROBE_H
#define NECROPSY_PROBE_H

#include "kernel.h"

/* Have process `pid` heard: the same as Probe.add() in bpf_probe.py, with its `members` and `run`. 0, or -errno. */
int probe_add(int members, uint32_t run, int pid);

#endif
