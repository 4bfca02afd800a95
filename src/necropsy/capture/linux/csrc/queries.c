/* What is known of a process, for Python to read. */
#include "state.h"

/* The threads of a process that are held: pairs of thread and status; how many there are. */
EXPORT int necropsy_held(int pid, int32_t *pairs, int most)
{
    const struct table *all = &the_loop.table;
    ref process = process_of(all, pid);
    int count = 0;
    for (ref at = process ? all->processes[process].first : 0; at; at = all->threads[at].next)
        if (all->threads[at].held) {
            if (count < most) {
                pairs[2 * count] = all->threads[at].tid;
                pairs[2 * count + 1] = all->threads[at].status;
            }
            count++;
        }
    return count;
}

/* The handled faults of the threads of a process, of each thread the last one first; how many were written. */
EXPORT int necropsy_chances(int pid, struct chance *to, int most)
{
    const struct table *all = &the_loop.table;
    ref process = process_of(all, pid);
    int count = 0;
    for (ref at = process ? all->processes[process].first : 0; at && count < most; at = all->threads[at].next)
        for (ref one = all->threads[at].chance; one && count < most; one = all->chances[one].next)
            copy_bytes(&to[count++], &all->chances[one], sizeof *to);
    return count;
}

/* The last siginfo of each signal that a process got; how many were written. */
EXPORT int necropsy_signals(int pid, struct signal *to, int most)
{
    const struct table *all = &the_loop.table;
    ref process = process_of(all, pid);
    int count = 0;
    for (ref at = process ? all->processes[process].signals : 0; at && count < most; at = all->signals[at].next)
        copy_bytes(&to[count++], &all->signals[at], sizeof *to);
    return count;
}

/* Where the control block of a thread lies (its thread pointer); 0 where that was not read. */
EXPORT uint64_t necropsy_base(int tid)
{
    const struct table *all = &the_loop.table;
    ref thread = thread_of(all, tid);
    return thread ? all->threads[thread].base : 0;
}
