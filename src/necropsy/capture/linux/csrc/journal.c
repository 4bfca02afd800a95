#include "journal.h"

struct record *record(struct loop *all, int kind, int tid, int pid)
{
    struct record *one = &all->journal[all->written++];
    clear_bytes(one, sizeof *one);
    one->kind = kind;
    one->tid = tid;
    one->pid = pid;
    one->at = now();
    return one;
}

struct record *finished(struct loop *all, int tid, int pid, int status, const struct process *process)
{
    struct record *one = record(all, FINISHED, tid, pid);
    one->value = status;
    if (process && tid == pid) {
        one->peak_rss = process->peak_rss;
        one->peak_size = process->peak_size;
        one->stack = process->stack;
        one->stack_limit = process->stack_limit;
    }
    return one;
}
