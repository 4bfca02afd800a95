#include "stops.h"
#include "births.h"
#include "exec.h"
#include "exits.h"
#include "holding.h"
#include "ptrace.h"
#include "signals.h"

int on_stop(struct loop *all, int tid, int status, int consumed, struct event *out)
{
    int event = status >> 8, signo = status & 0x7f, said = 0;
    ref thread = thread_of(&all->table, tid);
    if (tid == all->newborn)
        all->newborn = 0; /* it was killed in its first stop */
    int is_birth = event == EVENT_CLONE || event == EVENT_FORK || event == EVENT_VFORK;
    int stays = event == EVENT_STOP && (!thread || signo != SIGTRAP);
    /* After the exec of a thread that was not the first, the kernel takes no request before the stop was taken. */
    if ((is_birth || stays || event == EVENT_EXEC) && !consumed) {
        /* Killed meanwhile, it is in another stop, and the kernel's word is another one. */
        said = is_birth ? (int)message(tid) : 0;
        int current = take_stop(tid, status);
        if (current != status)
            return on_stop(all, tid, current, 1, out);
        consumed = 1;
    }
    if (!thread && event == EVENT_STOP && all->early_count < EARLY) {
        /* New, and its creator has not said so yet: it is about to, and goes first. */
        all->early[all->early_count++] = (struct early){tid, now()};
        all->next = all->creator;
        return 0;
    }
    if (!thread && !(thread = adopt(all, tid))) {
        cont(tid, event ? 0 : signo);
        return 0;
    }
    struct thread *one = &all->table.threads[thread];
    ref process = one->process;
    struct process *owner = &all->table.processes[process];
    if (event == EVENT_EXEC)
        return on_exec(all, thread, tid, out);
    if (owner->holding) {
        if (is_birth && said)
            created(all, thread, event, said, 0);
        if (!consumed)
            status = take_stop(tid, status);
        keep_stopped(all, thread, status);
        return report_if_held(all, process, out);
    }
    switch (event) {
    case 0:
        if (all->always && is_at_its_end(tid))
            return 0; /* killed in this stop; its end is what comes next */
        if (signo == SIGTRAP && is_breakpoint(tid)) {
            /* The kernel forgets a signal whose stop was taken: it must not be left to the thread if we die now. */
            int current = consumed ? status : take_stop(tid, status);
            if (current != status)
                return on_stop(all, tid, current, 1, out);
            return report(out, NOTICED, tid, owner->pid, 0);
        }
        return on_signal(all, thread, signo, out);
    case EVENT_STOP:
        if (signo < 64 && STOPS & BIT(signo)) {
            one->rested = 1;
            return report(out, RESTS, tid, owner->pid, signo);
        }
        if (one->rested) {
            one->rested = 0;
            return report(out, RESUMED, tid, owner->pid, 0);
        }
        note_base(all, thread);
        if (tid == all->created) {
            all->created = 0;
            int at_once = begins_at_once(all);
            /* A process that was killed meanwhile is about to be returned for that; of a thread nothing is lost. */
            int current = consumed || (at_once && tid != owner->pid) ? status : take_stop(tid, status);
            if (current != status)
                return on_stop(all, tid, current, 1, out);
            if (at_once)
                cont(tid, 0);
            else
                begin_later(all, tid);
        } else {
            /* It was interrupted (exception_watch.py), and stopped late. */
            if (asks_for_call(all, thread, out))
                return 1;
            make_call_again(tid);
            cont(tid, 0);
        }
        return 0;
    case EVENT_CLONE:
    case EVENT_FORK:
    case EVENT_VFORK:
        if (said && all->always && event == EVENT_CLONE && !owner->executed && !owner->threaded) {
            created(all, thread, event, said, 0);
            owner->threaded = owner->threads > 1;
            return report(out, THREADED, tid, owner->pid, 0);
        }
        if (said)
            created(all, thread, event, said, 1);
        else
            cont(tid, 0);
        return 0;
    case EVENT_EXIT:
        return on_exit_stop(all, thread, out);
    default:
        cont(tid, 0);
        return 0;
    }
}
