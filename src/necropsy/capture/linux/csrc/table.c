#include "table.h"

#define POOL(type, count) (type *)reserve(sizeof(type) * (size_t)(count))

/* Zero, or -1 where there is no memory. */
int table_open(struct table *all)
{
    all->threads = POOL(struct thread, MOST_THREADS);
    all->processes = POOL(struct process, MOST_PROCESSES);
    all->signals = POOL(struct signal, MOST_SIGNALS);
    all->chances = POOL(struct chance, MOST_CHANCES);
    all->thread_buckets = POOL(ref, BUCKETS);
    all->process_buckets = POOL(ref, BUCKETS);
    all->used_threads = all->used_processes = all->used_signals = all->used_chances = 1;
    return all->threads && all->processes && all->signals && all->chances && all->thread_buckets
                   && all->process_buckets
               ? 0
               : -1;
}

static unsigned bucket(int id)
{
    return (unsigned)id & (BUCKETS - 1);
}

ref thread_of(const struct table *all, int tid)
{
    ref at = all->thread_buckets[bucket(tid)];
    while (at && all->threads[at].tid != tid)
        at = all->threads[at].same_bucket;
    return at;
}

ref process_of(const struct table *all, int pid)
{
    ref at = all->process_buckets[bucket(pid)];
    while (at && all->processes[at].pid != pid)
        at = all->processes[at].same_bucket;
    return at;
}

/* 0 where there are too many. */
ref add_process(struct table *all, int pid)
{
    ref at = all->free_process;
    if (at)
        all->free_process = all->processes[at].same_bucket;
    else if (all->used_processes < MOST_PROCESSES)
        at = all->used_processes++;
    else
        return 0;
    struct process *one = &all->processes[at];
    clear_bytes(one, sizeof *one);
    one->pid = pid;
    one->same_bucket = all->process_buckets[bucket(pid)];
    all->process_buckets[bucket(pid)] = at;
    return at;
}

/* 0 where there are too many. */
ref add_thread(struct table *all, ref process, int tid)
{
    ref at = all->free_thread;
    if (at)
        all->free_thread = all->threads[at].same_bucket;
    else if (all->used_threads < MOST_THREADS)
        at = all->used_threads++;
    else
        return 0;
    struct thread *one = &all->threads[at];
    struct process *owner = &all->processes[process];
    clear_bytes(one, sizeof *one);
    one->tid = tid;
    one->process = process;
    one->same_bucket = all->thread_buckets[bucket(tid)];
    all->thread_buckets[bucket(tid)] = at;
    one->next = owner->first;
    if (one->next)
        all->threads[one->next].before = at;
    owner->first = at;
    owner->threads++;
    owner->running++;
    all->live++;
    return at;
}

void drop_thread(struct table *all, ref thread)
{
    struct thread *one = &all->threads[thread];
    struct process *owner = &all->processes[one->process];
    ref *from = &all->thread_buckets[bucket(one->tid)];
    while (*from != thread)
        from = &all->threads[*from].same_bucket;
    *from = one->same_bucket;
    if (one->before)
        all->threads[one->before].next = one->next;
    else
        owner->first = one->next;
    if (one->next)
        all->threads[one->next].before = one->before;
    all->live--;
    owner->threads--;
    owner->running -= !one->held && !one->exiting;
    while (one->chance)
        drop_chance(all, &one->chance);
    one->tid = 0;
    one->same_bucket = all->free_thread;
    all->free_thread = thread;
}

void drop_process(struct table *all, ref process)
{
    struct process *one = &all->processes[process];
    while (one->first)
        drop_thread(all, one->first);
    while (one->signals) {
        ref at = one->signals;
        one->signals = all->signals[at].next;
        all->signals[at].next = all->free_signal;
        all->free_signal = at;
    }
    ref *from = &all->process_buckets[bucket(one->pid)];
    while (*from != process)
        from = &all->processes[*from].same_bucket;
    *from = one->same_bucket;
    one->pid = 0;
    one->same_bucket = all->free_process;
    all->free_process = process;
}

/* Where this signal's information is kept for the process; NULL where there is no room. */
struct signal *signal_of(struct table *all, ref process, int number)
{
    struct process *owner = &all->processes[process];
    ref at = owner->signals;
    while (at && all->signals[at].number != number)
        at = all->signals[at].next;
    if (at)
        return &all->signals[at];
    at = all->free_signal;
    if (at)
        all->free_signal = all->signals[at].next;
    else if (all->used_signals < MOST_SIGNALS)
        at = all->used_signals++;
    else
        return NULL;
    all->signals[at].number = number;
    all->signals[at].next = owner->signals;
    owner->signals = at;
    return &all->signals[at];
}

/* A new one for this thread, which becomes its last; 0 where there is no room. */
ref add_chance(struct table *all, ref thread)
{
    struct thread *one = &all->threads[thread];
    ref at = all->free_chance;
    if (at)
        all->free_chance = all->chances[at].next;
    else if (all->used_chances < MOST_CHANCES)
        at = all->used_chances++;
    else
        return 0;
    all->chances[at].tid = one->tid;
    all->chances[at].next = one->chance;
    one->chance = at;
    return at;
}

/* `from` is where its index stands: in the thread, or in the one after it. */
void drop_chance(struct table *all, ref *from)
{
    ref at = *from;
    *from = all->chances[at].next;
    all->chances[at].next = all->free_chance;
    all->free_chance = at;
}
