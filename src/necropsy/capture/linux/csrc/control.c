/* What Python has done with the threads and processes that were returned to it. */
#include "births.h"
#include "exec.h"
#include "exits.h"
#include "holding.h"
#include "proc.h"
#include "ptrace.h"
#include "signals.h"

/* A thread that runs, and that this thread has seized. */
EXPORT void necropsy_adopt(int tid)
{
    if (!thread_of(&the_loop.table, tid))
        adopt(&the_loop, tid);
}

/* Let a thread that was returned go on, with this signal. */
EXPORT void necropsy_resume(int tid, int signo)
{
    struct loop *all = &the_loop;
    ref thread = thread_of(&all->table, tid);
    struct thread *one = &all->table.threads[thread];
    if (thread && one->held) {
        one->held = 0;
        all->table.processes[one->process].running += !one->exiting;
    }
    if (!all->always || !is_at_its_end(tid)) /* else it was killed meanwhile, and its end is of interest */
        cont(tid, signo);
}

/* Leave a thread that was returned as RESTS in its group-stop. */
EXPORT void necropsy_listen(int tid)
{
    trace(PTRACE_LISTEN, tid, 0, 0);
}

/* A thread that was returned at its EVENT_EXIT goes on to its end. */
EXPORT void necropsy_let_exit(int tid)
{
    ref thread = thread_of(&the_loop.table, tid);
    if (thread)
        let_exit(&the_loop, thread);
    else
        cont(tid, 0);
}

/* Stop all threads of the process of `tid`, which was just returned and stays as it is: stopped at `status`, or running
 * (-1). 1 where all of them stand already; else HELD will be returned.
 *
 * A signal that the thread is stopped at (`again` is its number) is sent once more: the kernel forgets a signal whose
 * stop was waited for, and if this process were killed now, the thread would live on. */
EXPORT int necropsy_hold(int tid, int status, int again, int interrupt)
{
    struct loop *all = &the_loop;
    ref thread = thread_of(&all->table, tid);
    if (!thread)
        return 1;
    ref process = all->table.threads[thread].process;
    struct process *one = &all->table.processes[process];
    if (again)
        call3(SYS_tgkill, one->pid, tid, again);
    if (status >= 0)
        keep_stopped(all, thread, take_stop(tid, status));
    begin_hold(all, process, interrupt);
    if (one->holding && !is_held(all, process))
        return 0;
    end_hold(all, process);
    return 1;
}

/* The signal has its default action, and that is the end of the process. */
static int is_lethal(int tid, int signo)
{
    uint64_t caught, ignored;
    return signo > 0 && signo < 65 && !((HARMLESS | STOPS) & BIT(signo)) && dispositions(tid, &caught, &ignored)
           && !((caught | ignored) & BIT(signo));
}

/* Let all threads of a process go on: `first`, with this signal, before the others, which get their ordinary turn. If the
 * signal ends the process, the others are killed where they are held. */
EXPORT void necropsy_release(int pid, int first, int signo)
{
    struct loop *all = &the_loop;
    ref process = process_of(&all->table, pid);
    if (!process)
        return;
    struct process *one = &all->table.processes[process];
    end_hold(all, process);
    one->holding = 0;
    ref leader = thread_of(&all->table, first);
    int dies = 0;
    if (leader && all->table.threads[leader].held) {
        struct thread *thread = &all->table.threads[leader];
        thread->held = 0;
        one->running += !thread->exiting;
        if (thread->status >> 8 == EVENT_EXIT) {
            let_exit(all, leader);
        } else if (!has_moved_on(first, thread->status)) {
            dies = is_lethal(first, signo);
            cont(first, signo);
        }
    }
    if (dies)
        release_later(all, process);
    else
        release_others(all, process);
}

/* What the process has just executed is nothing special: from now on, whoever executes it need not be returned. */
EXPORT void necropsy_ordinary(int pid)
{
    remember_ordinary(&the_loop, pid);
}

/* The process was detached. */
EXPORT void necropsy_forget(int pid)
{
    ref process = process_of(&the_loop.table, pid);
    if (process) {
        end_hold(&the_loop, process);
        drop_process(&the_loop.table, process);
    }
}

/* Processes are returned as REQUESTED at these signals, a bit for each. */
EXPORT void necropsy_requests(unsigned long signals)
{
    the_loop.requests = signals;
}

/* The process is not returned as REQUESTED for so long. */
EXPORT void necropsy_quiet(int pid, unsigned long milliseconds)
{
    ref process = process_of(&the_loop.table, pid);
    if (process)
        the_loop.table.processes[process].quiet_until = now() + milliseconds * MILLISECOND;
}

/* The process has a report: its further threads, and its end by a signal, are of interest as an end only. */
EXPORT void necropsy_told(int pid)
{
    ref process = process_of(&the_loop.table, pid);
    if (process)
        the_loop.table.processes[process].told = 1;
}
