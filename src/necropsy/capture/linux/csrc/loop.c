/* The part of the tracer that decides nothing, and that therefore may not cost anything.
 *
 * New threads and processes, healthy ends and signals that do not kill are served here; `necropsy_next` returns what
 * takes a decision. What was served is written to a journal, in order, which the caller reads before it acts on what
 * was returned. `python_loop.py` does the same work where there is no compiler; both have the same tests.
 *
 * A stop is only looked at (WNOWAIT) and then continued, where nothing has to be decided: if this process is killed
 * in between, the kernel still knows the signal that the thread was stopped at.
 */
#include "births.h"
#include "exits.h"
#include "holding.h"
#include "ptrace.h"
#include "stops.h"
#include "unchanged.h"
#include "waiting.h"
#include "waking.h"

enum { LOOK_EVERY = 64 };

struct loop the_loop;

/* `clock` is the C library's clock_gettime. */
EXPORT void necropsy_clock(int (*clock)(int, struct timespec *))
{
    clock_function = clock;
}

/* How many system calls the loop has made. */
EXPORT uint64_t necropsy_calls(void)
{
    return calls_made;
}

/* `ends`: 1 returns all ends of processes, 2 those by an exit code that is not 0; else it is the command alone.
 * `root`: 0 where there is no command: who is to be traced comes by necropsy_adopt. */
EXPORT int necropsy_open(int root, int front, int ends, int members, unsigned run, void *beats, void *deliveries,
                         void *timed_out)
{
    struct loop *all = &the_loop;
    clear_bytes(all, sizeof *all);
    call3(SYS_prctl, 29, 1, 0); /* PR_SET_TIMERSLACK: short sleeps are short */
    all->journal = reserve(sizeof(struct record) * JOURNAL);
    all->text = reserve(TEXT);
    all->environment = reserve(2 * ENVIRONMENT);
    all->files = reserve(sizeof(struct file) * FILES);
    all->early = reserve(sizeof(struct early) * EARLY);
    all->queue = reserve(sizeof(ref) * MOST_THREADS);
    all->holds = reserve(sizeof(ref) * HOLDS);
    all->sweep = reserve(sizeof(int32_t) * MOST_THREADS);
    if (table_open(&all->table) || !all->journal || !all->text || !all->environment || !all->files || !all->early
        || !all->queue || !all->holds || !all->sweep)
        return -1;
    all->root = root;
    all->front = front;
    all->always = ends & 1;
    all->failures = ends & 2;
    all->members = members;
    all->run = run;
    all->beats = beats;
    all->deliveries = deliveries;
    all->timed_out = timed_out;
    open_waking(all);
    if (!root)
        return 0;
    ref process = start_process(all, root);
    return process && add_thread(&all->table, process, root) ? 0 : -1;
}

EXPORT struct record *necropsy_journal(void)
{
    return the_loop.journal;
}

/* What the caller reads of it must be what it was compiled with (c_library.py). */
EXPORT int necropsy_record_size(void)
{
    return sizeof(struct record);
}

/* How many records the journal holds; they are forgotten. */
EXPORT int necropsy_drain(void)
{
    int count = the_loop.written;
    the_loop.written = the_loop.text_used = 0;
    return count;
}

/* Where the texts lie that records speak of. */
EXPORT const char *necropsy_text(void)
{
    return the_loop.text;
}

/* Serve a stop or an end (struct siginfo). 1 where there is something to return in `out`. */
static int served(struct loop *all, const int32_t *info, struct event *out)
{
    int code = info[2], tid = info[4], status = info[6];
    if (code == CLD_TRAPPED)
        return on_stop(all, tid, status, 0, out);
    if (code == CLD_STOPPED) {
        int ignored; /* a child of ours that is not traced was stopped: not our business */
        call4(SYS_wait4, tid, (long)&ignored, WALL | WNOHANG | 2, 0);
        return 0;
    }
    int end = 0;
    uint64_t used[18] = {0}; /* struct rusage: two times of 16 bytes, ru_maxrss in KiB, ... */
    /* To sum up what a process used, the kernel goes through its threads: only the last of them is asked. */
    long usage = process_of(&all->table, tid) ? (long)used : 0;
    if (call4(SYS_wait4, tid, (long)&end, WALL | WNOHANG, usage) != tid)
        return 0;
    /* It may have been killed in the middle of a stop: that stop is over too. */
    return (end & 0xff) == 0x7f ? on_stop(all, tid, end >> 8, 1, out) : on_end(all, tid, end, (uint32_t)used[4], out);
}

/* Nothing but a stop, an end or a signal is waited for: one call does. With a time limit a signal tells that it is over. */
static int is_patient(struct loop *all, uint64_t until)
{
    if (all->table.live > CROWD) {
        forbid_waking(all); /* sigtimedwait(2) waits there */
        return 0;
    }
    if (all->hold_count || all->early_count || all->newborn || all->dying || (until != UINT64_MAX && !all->can_wake))
        return 0;
    if (until != UINT64_MAX)
        allow_waking(all, until);
    return 1;
}

static void serve(struct loop *all, struct event *out, uint64_t until)
{
    if (all->leaving) {
        drop_process(&all->table, all->leaving);
        all->leaving = 0;
    }
    for (;;) {
        if (!until) {
            report(out, NOTHING, 0, 0, 0);
            return;
        }
        if (all->written > JOURNAL - 8 || all->text_used > TEXT - MOST_TEXT) {
            report(out, DRAIN, 0, 0, 0);
            return;
        }
        if (all->queue_first != all->queue_last) {
            ref thread = all->queue[all->queue_first++ % MOST_THREADS];
            struct thread *one = &all->table.threads[thread];
            if (one->queued) {
                one->queued = 0;
                if (!has_moved_on(one->tid, one->status) && on_stop(all, one->tid, one->status, 1, out))
                    return;
            }
            continue;
        }
        begin_in_time(all);
        release_in_time(all);
        int32_t info[32] = {0};
        long failed = look(all, is_patient(all, until), info);
        if (all->woken) {
            all->woken = 0;
            all->next = failed == 0 ? info[4] : 0;
            uint64_t time = now();
            if (time >= until && is_unchanged(all, time, &until)) {
                forbid_waking(all); /* until the next time */
                continue;
            }
            report(out, NOTHING, 0, 0, 0); /* the time is up, or a reader has finished (crash_reader.py) */
            return;
        }
        if (failed == -ECHILD) {
            report(out, OVER, 0, 0, 0);
            return;
        }
        if (failed < 0)
            continue;
        if (info[4]) {
            if (++*all->beats % LOOK_EVERY == 0 && until != UINT64_MAX && now() >= until
                && !is_unchanged(all, now(), &until))
                until = 0; /* events without end must not keep the caller from what it waits for */
            if (served(all, info, out))
                return;
            continue;
        }
        uint64_t time = now();
        adopt_early(all, time);
        if (all->hold_count && report_late(all, out, time))
            return;
        if (time >= until && !is_unchanged(all, time, &until)) {
            report(out, NOTHING, 0, 0, 0);
            return;
        }
        wait_until(all, until, time);
    }
}

/* Serve stops until one takes a decision, or until `wait_ms` have passed (-1: for as long as it takes). */
EXPORT void necropsy_next(struct event *out, long wait_ms)
{
    serve(&the_loop, out, wait_ms < 0 ? UINT64_MAX : now() + (uint64_t)wait_ms * MILLISECOND);
    forbid_waking(&the_loop);
    forget_baseline();
}
