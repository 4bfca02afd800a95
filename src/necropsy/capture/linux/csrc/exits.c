#include "exits.h"
#include "births.h"
#include "holding.h"
#include "journal.h"
#include "proc.h"
#include "ptrace.h"
#include "signals.h"

enum { RLIMIT_STACK = 3 };
enum { SMALL_STACK = 256 }; /* KiB; the kernel gives 132 to every program */

/* The stack of the main thread, if it has grown so far that less than 12 % of its limit is left; in KiB. */
static void read_main_stack(int tid, struct process *process, long size)
{
    uint64_t limit[2];
    if (size < SMALL_STACK || call4(SYS_prlimit64, tid, RLIMIT_STACK, 0, (long)limit) || limit[0] == UINT64_MAX)
        return;
    uint64_t most = limit[0] / 1024;
    if ((uint64_t)size * 100 > most * 88 && most <= UINT32_MAX) {
        process->stack = (uint32_t)size;
        process->stack_limit = (uint32_t)most;
    }
}

static void read_peaks(int tid, struct process *process)
{
    char text[STATUS_TEXT];
    if (process->peak_size || !read_status(tid, text, sizeof text))
        return;
    long size = field(text, "VmPeak:", 10), rss = field(text, "VmHWM:", 10);
    if (size > 0 && rss > 0) {
        process->peak_size = (uint32_t)size;
        process->peak_rss = (uint32_t)rss;
        read_main_stack(tid, process, field(text, "VmStk:", 10));
    }
}

static int others_live(const struct loop *all, ref thread)
{
    const struct thread *one = &all->table.threads[thread];
    return all->table.processes[one->process].running > (!one->held && !one->exiting);
}

void let_exit(struct loop *all, ref thread)
{
    struct thread *one = &all->table.threads[thread];
    if (!one->exiting && !one->held)
        all->table.processes[one->process].running--;
    one->exiting = 1;
    cont(one->tid, 0);
}

int on_exit_stop(struct loop *all, ref thread, struct event *out)
{
    struct thread *one = &all->table.threads[thread];
    struct process *owner = &all->table.processes[one->process];
    int ending = (int)message(one->tid), killed = ending & 0x7f;
    int alone = !killed && others_live(all, thread) && is_in_call(one->tid, SYS_exit);
    if (!alone && (owner->executed || owner->pid == all->root))
        read_peaks(one->tid, owner);
    if (killed && !all->root_ended && !owner->told && (killed == SIGSYS || !owner->killed)) {
        owner->killed = 1;
        return report(out, EXITING, one->tid, owner->pid, ending);
    }
    /* It ends all of them, after a fault that a handler took: is that handler still running? */
    int gives_up = one->chance && !killed && ending >> 8 && !all->root_ended && !owner->told
                   && is_in_call(one->tid, SYS_exit_group);
    int fails = (owner->pid == all->root || all->failures) && !killed && !alone && ending >> 8 && !owner->measured;
    if (gives_up || fails || (all->always && !killed && !alone && !owner->measured)) {
        owner->measured = 1;
        return report(out, EXITING, one->tid, owner->pid, ending);
    }
    let_exit(all, thread);
    return 0;
}

static void remember_end(struct loop *all, int tid, int status, int listed)
{
    int slot = all->gone_next++ % ENDED_EARLY;
    all->gone[slot].tid = tid;
    all->gone[slot].status = status;
    all->gone[slot].at = now();
    all->gone[slot].listed = listed;
}

int on_end(struct loop *all, int tid, int status, uint32_t peak_rss, struct event *out)
{
    ref thread = thread_of(&all->table, tid);
    if (!thread) {
        remember_end(all, tid, status, 0);
        return take_early(all, tid) ? 0 : report(out, CHILD, tid, tid, status);
    }
    ref process = all->table.threads[thread].process;
    struct process *owner = &all->table.processes[process];
    int pid = owner->pid;
    if (!owner->executed && tid == pid && !owner->peak_rss)
        owner->peak_rss = peak_rss; /* of a process that is what it was forked as, the kernel counted nothing else */
    finished(all, tid, pid, status, owner)->base = all->table.threads[thread].base;
    if (all->table.threads[thread].unannounced)
        remember_end(all, tid, status, 1);
    drop_thread(&all->table, thread);
    if (tid != pid)
        return report_if_held(all, process, out);
    end_hold(all, process);
    if (status & 0x7f || pid == all->root || owner->told) {
        all->leaving = process;
        all->root_ended |= pid == all->root;
        return report(out, ENDED, tid, pid, status);
    }
    drop_process(&all->table, process);
    return 0;
}
