#include "waiting.h"
#include "ptrace.h"
#include "signals.h"
#include "waking.h"

enum { WANTED = WEXITED | WSTOPPED | WNOWAIT | WALL };

/* What is to be waited for of one thread, in `info` (struct siginfo; its pid is 0 where there is nothing). */
static long look_at(int tid, int32_t *info)
{
    info[4] = 0;
    return call5(SYS_waitid, P_PID, tid, (long)info, WANTED | WNOHANG, 0);
}

/* Wait at most `wait` ns for SIGCHLD or for the reader's signal. Returns the thread that caused SIGCHLD, or 0. */
static int signalled(struct loop *all, uint64_t wait)
{
    uint64_t wanted[1] = {BIT(SIGCHLD) | BIT(SIGUSR1)};
    int32_t info[32] = {0};
    struct timespec limit = {(int64_t)(wait / 1000000000UL), (int64_t)(wait % 1000000000UL)};
    long signo = call4(SYS_rt_sigtimedwait, (long)wanted, (long)info, (long)&limit, 8);
    all->woken |= signo == SIGUSR1;
    return signo == SIGCHLD ? info[4] : 0;
}

/* The threads that were asked to stop, one after the other. */
static int sweep(struct loop *all, int32_t *info)
{
    uint64_t begun = now();
    if (begun < all->sweep_after)
        return 0;
    for (uint32_t left = all->sweep_last - all->sweep_first; left; left--) {
        int tid = all->sweep[all->sweep_first++ % MOST_THREADS];
        ref at = thread_of(&all->table, tid);
        struct thread *one = &all->table.threads[at];
        if (!at || one->held || one->exiting || !all->table.processes[one->process].holding)
            continue;
        if (look_at(tid, info) == 0 && info[4])
            return 1;
        all->sweep[all->sweep_last++ % MOST_THREADS] = tid;
    }
    uint64_t ended = now();
    all->sweep_after = ended + 2 * (ended - begun);
    return 0;
}

/* The next stop or end of many threads; as `look`. */
static long look_in_crowd(struct loop *all, int32_t *info)
{
    int tid;
    while ((tid = signalled(all, 0))) {
        all->owed = 1;
        if (look_at(tid, info) == 0 && info[4])
            return 0;
    }
    if (all->sweep_first != all->sweep_last && sweep(all, info))
        return 0;
    info[4] = 0;
    uint64_t begun = now();
    if (!all->owed || begun < all->scan_after)
        return 0;
    long failed = call5(SYS_waitid, P_ALL, 0, (long)info, WANTED | WNOHANG, 0);
    uint64_t ended = now();
    all->scan_after = ended + 2 * (ended - begun);
    all->owed = failed == 0 && info[4];
    return failed;
}

long look(struct loop *all, int patient, int32_t *info)
{
    int tid = all->next;
    all->next = 0;
    if (tid && look_at(tid, info) == 0 && info[4])
        return 0;
    if (all->table.live > CROWD)
        return look_in_crowd(all, info);
    all->owed = 1;
    if (patient && all->may_wake)
        return wait_or_wake(all, info);
    info[4] = 0;
    return call5(SYS_waitid, P_ALL, 0, (long)info, WANTED | (patient ? 0 : WNOHANG), 0);
}

void wait_until(struct loop *all, uint64_t until, uint64_t time)
{
    int is_crowded = all->table.live > CROWD;
    if (is_crowded && all->owed && all->scan_after < until)
        until = all->scan_after;
    if (is_crowded && all->sweep_first != all->sweep_last && all->sweep_after < until)
        until = all->sweep_after;
    if (all->newborn && all->begins_at < until)
        until = all->begins_at;
    if (all->dying && all->dying_until < until)
        until = all->dying_until;
    uint64_t wait = until > time ? until - time : 0;
    uint64_t most = all->early_count ? EARLY_WAIT : all->hold_count ? LOOK : wait;
    int tid = signalled(all, wait < most ? wait : most);
    if (tid) {
        all->owed = 1;
        all->next = is_crowded ? tid : 0;
    }
}
