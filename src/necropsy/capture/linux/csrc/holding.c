#include "holding.h"
#include "proc.h"
#include "ptrace.h"
#include "signals.h"

#define FREEZE_WAIT (2000 * MILLISECOND)
#define LONGEST_FREEZE (8000 * MILLISECOND)
#define DYING (100 * MILLISECOND)

int is_held(const struct loop *all, ref process)
{
    int is_awaited = 0;
    for (int at = 0; at < all->hold_count; at++)
        is_awaited |= all->holds[at] == process;
    return is_awaited && all->table.processes[process].running <= 0;
}

void end_hold(struct loop *all, ref process)
{
    for (int at = 0; at < all->hold_count; at++)
        if (all->holds[at] == process)
            all->holds[at] = all->holds[--all->hold_count];
}

void keep_stopped(struct loop *all, ref thread, int status)
{
    struct thread *one = &all->table.threads[thread];
    struct process *owner = &all->table.processes[one->process];
    one->status = status;
    if (one->held)
        return;
    one->held = 1;
    owner->running -= !one->exiting;
    owner->last_held = now();
}

void serve_later(struct loop *all, ref thread)
{
    if (!all->table.threads[thread].queued) {
        all->table.threads[thread].queued = 1;
        all->queue[all->queue_last++ % MOST_THREADS] = thread;
    }
}

void begin_hold(struct loop *all, ref process, int interrupt)
{
    struct process *one = &all->table.processes[process];
    if (one->holding || all->hold_count == HOLDS)
        return;
    one->holding = 1;
    one->held_since = one->last_held = now();
    all->holds[all->hold_count++] = process;
    ref newborn = all->newborn ? thread_of(&all->table, all->newborn) : 0;
    if (newborn && all->table.threads[newborn].process == process) {
        keep_stopped(all, newborn, EVENT_STOP << 8 | SIGTRAP);
        all->newborn = 0;
    }
    for (ref at = interrupt ? one->first : 0; at; at = all->table.threads[at].next)
        if (!all->table.threads[at].held && !all->table.threads[at].exiting) {
            trace(PTRACE_INTERRUPT, all->table.threads[at].tid, 0, 0);
            if (all->table.live > CROWD && all->sweep_last - all->sweep_first < MOST_THREADS)
                all->sweep[all->sweep_last++ % MOST_THREADS] = all->table.threads[at].tid;
        }
    all->sweep_after = 0;
}

int report_if_held(struct loop *all, ref process, struct event *out)
{
    struct process *one = &all->table.processes[process];
    if (!is_held(all, process))
        return 0;
    end_hold(all, process);
    return report(out, HELD, one->pid, one->pid, 0);
}

int report_late(struct loop *all, struct event *out, uint64_t time)
{
    if (time < all->late_after)
        return 0;
    all->late_after = time + LOOK / 2;
    for (int at = 0; at < all->hold_count; at++) {
        ref process = all->holds[at];
        struct process *one = &all->table.processes[process];
        int late = time > one->last_held + FREEZE_WAIT || time > one->held_since + LONGEST_FREEZE, left = 0;
        for (ref next = one->first; next; next = all->table.threads[next].next) {
            struct thread *thread = &all->table.threads[next];
            left += !thread->held && !thread->exiting && (late || is_running(thread->tid));
        }
        if (late || !left || one->running <= 0) {
            end_hold(all, process);
            return report(out, HELD, one->pid, one->pid, left);
        }
    }
    return 0;
}

/* The thread goes on, or gets its ordinary turn. */
static void release_thread(struct loop *all, ref at)
{
    struct thread *thread = &all->table.threads[at];
    uint64_t counter;
    int event = thread->status >> 8, is_new = event == EVENT_CLONE || event == EVENT_FORK || event == EVENT_VFORK;
    int is_ours = thread->status == (EVENT_STOP << 8 | SIGTRAP) && !thread->rested;
    thread->held = 0;
    all->table.processes[thread->process].running += !thread->exiting;
    if ((!is_ours && !is_new) || (is_ours && CALLER_RESTARTS && was_interrupted(thread->tid, &counter))) {
        serve_later(all, at);
    } else if (!has_moved_on(thread->tid, thread->status)) {
        if (is_ours)
            make_call_again(thread->tid);
        cont(thread->tid, 0); /* whom it created is in the journal already */
    }
}

void release_others(struct loop *all, ref process)
{
    for (ref at = all->table.processes[process].first; at; at = all->table.threads[at].next)
        if (all->table.threads[at].held)
            release_thread(all, at);
}

void release_later(struct loop *all, ref process)
{
    ref before = all->dying ? process_of(&all->table, all->dying) : 0;
    if (before && before != process && !all->table.processes[before].holding)
        release_others(all, before);
    all->dying = all->table.processes[process].pid;
    all->dying_until = now() + DYING;
    /* Those that were ending by themselves are not killed where a core is written. */
    for (ref at = all->table.processes[process].first; at; at = all->table.threads[at].next)
        if (all->table.threads[at].held && all->table.threads[at].status >> 8 == EVENT_EXIT)
            release_thread(all, at);
}

void release_in_time(struct loop *all)
{
    if (!all->dying)
        return;
    ref process = process_of(&all->table, all->dying);
    if (process && now() < all->dying_until)
        return;
    all->dying = 0;
    if (process && !all->table.processes[process].holding)
        release_others(all, process);
}
