/* Signals: what they do by default, and the stops at them. */
#ifndef NECROPSY_SIGNALS_H
#define NECROPSY_SIGNALS_H

#include "state.h"

enum { SIGTRAP = 5, SIGKILL = 9, SIGUSR1 = 10, SIGCHLD = 17, SIGCONT = 18, SIGURG = 23, SIGWINCH = 28, SIGSYS = 31 };

#define BIT(signo) (1UL << ((signo) - 1))
/* Their default action is to dump core (signal(7)). */
#define CORE (BIT(3) | BIT(4) | BIT(5) | BIT(6) | BIT(7) | BIT(8) | BIT(11) | BIT(24) | BIT(25) | BIT(31))
#define HARMLESS (BIT(SIGCHLD) | BIT(SIGURG) | BIT(SIGWINCH) | BIT(SIGCONT))
#define STOPS (BIT(19) | BIT(20) | BIT(21) | BIT(22))

/* Stopped at a signal: it is passed on, or returned where it kills. 1 where there is something to return in `out`. */
int on_signal(struct loop *, ref thread, int signo, struct event *out);
/* The SIGTRAP that the thread is stopped at comes from a breakpoint of hardware_breakpoint.py. */
int is_breakpoint(int tid);
/* Our own PTRACE_INTERRUPT has interrupted a call that the caller is to make again. 1 where that is returned in `out`. */
int asks_for_call(struct loop *, ref thread, struct event *out);

#endif
