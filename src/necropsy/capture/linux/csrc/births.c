#include "births.h"
#include "holding.h"
#include "journal.h"
#include "probe.h"
#include "proc.h"
#include "ptrace.h"
#include "signals.h"

#define GONE_FOR (1000 * MILLISECOND)
#define HEAD_START 40000 /* ns */
#define IN_A_ROW (2 * MILLISECOND)

void tell_probe(const struct loop *all, int pid)
{
    if (all->members >= 0)
        probe_add(all->members, all->run, pid);
}

ref start_process(struct loop *all, int pid)
{
    ref found = process_of(&all->table, pid);
    if (!found && (found = add_process(&all->table, pid)))
        tell_probe(all, pid);
    return found;
}

/* A new thread is known: of which process, and created by whom. 0 where the table is full. */
static ref started(struct loop *all, int tid, int pid, int parent, int event)
{
    ref process = start_process(all, pid);
    ref thread = process ? add_thread(&all->table, process, tid) : 0;
    struct record *one = record(all, STARTED, tid, pid);
    one->parent = parent;
    one->value = event;
    return thread;
}

ref adopt(struct loop *all, int tid)
{
    char text[STATUS_TEXT];
    if (!read_status(tid, text, sizeof text))
        return 0;
    int pid = (int)field(text, "Tgid:", 10), parent = (int)field(text, "PPid:", 10);
    return started(all, tid, pid > 0 ? pid : tid, parent > 0 ? parent : 0, 0);
}

void note_base(struct loop *all, ref thread)
{
    struct thread *one = &all->table.threads[thread];
    if (all->always && !one->base)
        one->base = thread_pointer(one->tid);
}

int take_early(struct loop *all, int tid)
{
    for (int at = 0; at < all->early_count; at++)
        if (all->early[at].tid == tid) {
            all->early[at] = all->early[--all->early_count];
            return 1;
        }
    return 0;
}

/* A new thread takes some time to begin where it is not traced, and its creator does not wait for it. Programs that rely
 * on that by mistake must not live longer with us than without. Of many threads in a row only the first one waits; what
 * else happens is served meanwhile. */
int begins_at_once(struct loop *all)
{
    uint64_t time = now(), before = all->last_birth;
    all->last_birth = time;
    return all->newborn || time <= before + IN_A_ROW;
}

void begin_later(struct loop *all, int tid)
{
    all->newborn = tid;
    all->begins_at = now() + HEAD_START;
}

static void let_begin(struct loop *all, int tid)
{
    if (begins_at_once(all))
        cont(tid, 0);
    else
        begin_later(all, tid);
}

void begin_in_time(struct loop *all)
{
    if (!all->newborn || now() < all->begins_at)
        return;
    if (!has_moved_on(all->newborn, EVENT_STOP << 8 | SIGTRAP))
        cont(all->newborn, 0);
    all->newborn = 0;
}

/* Free the slot of a thread that ended before the event of its creator arrived. Returns its index; -1 if there is none. */
static int gone_before(struct loop *all, int tid)
{
    for (int at = 0; at < ENDED_EARLY; at++)
        if (all->gone[at].tid == tid && now() < all->gone[at].at + GONE_FOR) {
            all->gone[at].tid = 0;
            return at;
        }
    return -1;
}

/* The event of `creator` announces a new thread or process. The creator goes on first, as it would untraced. */
void created(struct loop *all, ref creator, int event, int tid, int go_on)
{
    struct thread *by = &all->table.threads[creator];
    int pid = all->table.processes[by->process].pid;
    int held = all->table.processes[by->process].holding;
    if (go_on)
        cont(by->tid, 0);
    int waits = take_early(all, tid);
    all->creator = by->tid;
    all->next = waits ? 0 : tid;
    all->created = event == EVENT_VFORK ? 0 : tid; /* who waits for it anyway takes no head start */
    ref known = thread_of(&all->table, tid);
    if (known)
        all->table.threads[known].unannounced = 0;
    int gone = gone_before(all, tid);
    if (known || (gone >= 0 && all->gone[gone].listed))
        return;
    int own = event != EVENT_CLONE || call3(SYS_tgkill, pid, tid, 0) == -ESRCH ? tid : pid, parent = pid;
    if (event == EVENT_CLONE && own == tid && call3(SYS_tgkill, tid, tid, 0) == -ESRCH && !waits)
        own = pid; /* it has ended by now; of a thread that is likelier */
    char text[STATUS_TEXT];
    if (event == EVENT_CLONE && own == tid && read_status(tid, text, sizeof text)) {
        long said = field(text, "Tgid:", 10);
        own = said > 0 ? (int)said : tid;
        said = field(text, "PPid:", 10); /* not the creator where CLONE_PARENT was asked for */
        parent = own != tid ? pid : said > 0 ? (int)said : pid;
    }
    ref thread = started(all, tid, own, parent, event);
    if (gone >= 0) {
        finished(all, tid, own, all->gone[gone].status, NULL);
        if (thread && own == tid)
            drop_process(&all->table, all->table.threads[thread].process);
        else if (thread)
            drop_thread(&all->table, thread);
        return;
    }
    if (!waits || !thread)
        return;
    note_base(all, thread);
    if (held && own == pid) {
        struct thread *one = &all->table.threads[thread];
        one->held = 1;
        one->status = EVENT_STOP << 8 | SIGTRAP;
        all->table.processes[one->process].running--;
    } else if (all->always && own == pid && !go_on) {
        all->table.threads[thread].status = EVENT_STOP << 8 | SIGTRAP;
        serve_later(all, thread);
    } else if (go_on && event != EVENT_VFORK) {
        let_begin(all, tid);
    } else {
        cont(tid, 0);
    }
}

void adopt_early(struct loop *all, uint64_t time)
{
    for (int at = 0; at < all->early_count;) {
        struct early one = all->early[at];
        if (time < one.since + EARLY_WAIT) {
            at++;
            continue;
        }
        all->early[at] = all->early[--all->early_count];
        ref thread = thread_of(&all->table, one.tid);
        if (!thread && (thread = adopt(all, one.tid)))
            all->table.threads[thread].unannounced = 1;
        if (thread)
            note_base(all, thread);
        if (thread && all->table.processes[all->table.threads[thread].process].holding)
            keep_stopped(all, thread, EVENT_STOP << 8 | SIGTRAP);
        else
            cont(one.tid, 0);
    }
}
