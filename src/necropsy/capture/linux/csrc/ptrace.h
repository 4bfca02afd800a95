/* ptrace(2) and waitid(2): numbers of the kernel, and the requests that each stop takes. Registers are in tracing_*.h. */
#ifndef NECROPSY_PTRACE_H
#define NECROPSY_PTRACE_H

#include "kernel.h"

enum {
    PTRACE_CONT = 7,
    PTRACE_GETEVENTMSG = 0x4201,
    PTRACE_GETSIGINFO = 0x4202,
    PTRACE_INTERRUPT = 0x4207,
    PTRACE_LISTEN = 0x4208
};
enum { EVENT_FORK = 1, EVENT_VFORK = 2, EVENT_CLONE = 3, EVENT_EXEC = 4, EVENT_EXIT = 6, EVENT_STOP = 128 };
enum { P_ALL = 0, P_PID = 1, WNOHANG = 1, WSTOPPED = 2, WEXITED = 4, WNOWAIT = 0x01000000, WALL = 0x40000000 };
enum { CLD_EXITED = 1, CLD_KILLED = 2, CLD_DUMPED = 3, CLD_TRAPPED = 4, CLD_STOPPED = 5 };

static inline long trace(int request, int tid, unsigned long address, unsigned long data)
{
    return call4(SYS_ptrace, request, tid, (long)address, (long)data);
}

static inline void cont(int tid, int signo)
{
    trace(PTRACE_CONT, tid, 0, (unsigned long)signo);
}

#ifdef __aarch64__
#include "tracing_aarch64.h"
#else
#include "tracing_x86_64.h"
#endif

static inline unsigned long message(int tid)
{
    unsigned long word = 0;
    trace(PTRACE_GETEVENTMSG, tid, 0, (unsigned long)&word);
    return word;
}

/* Take the stop, so that the next wait does not see it again. Returns it, or a newer one that has come in its place: a
 * thread that is killed in a stop goes on to its EVENT_EXIT. */
static inline int take_stop(int tid, int stop)
{
    int status = 0;
    if (call4(SYS_wait4, tid, (long)&status, WALL | WNOHANG, 0) == tid && (status & 0xff) == 0x7f)
        return status >> 8;
    return stop;
}

/* What is to be waited for of a thread, and stays so: 0 where there is nothing, -1 at its end, else event << 8 | signal. */
static inline int pending_stop(int tid)
{
    int32_t info[32] = {0};
    if (call5(SYS_waitid, P_PID, tid, (long)info, WEXITED | WSTOPPED | WNOWAIT | WNOHANG | WALL, 0) < 0)
        return -1;
    return !info[4] ? 0 : info[2] == CLD_TRAPPED ? info[6] : -1;
}

/* The thread was killed in this stop (event << 8 | signal), and something new is to be waited for: PTRACE_CONT would hide
 * that. A stop that was only looked at is still there. */
static inline int has_moved_on(int tid, int stop)
{
    int pending = pending_stop(tid);
    return pending && pending != stop;
}

/* As has_moved_on, whatever the stop was: the thread has come to its EVENT_EXIT, or is gone. */
static inline int is_at_its_end(int tid)
{
    int pending = pending_stop(tid);
    return pending < 0 || pending >> 8 == EVENT_EXIT;
}

#endif
