#include "signals.h"
#include "holding.h"
#include "proc.h"
#include "ptrace.h"

enum { CHECKED_FAULTS = 64, CHECK_EVERY = 64 };
enum { TRAP_PERF = 6, SI_CODE = 8, SI_PERF_DATA = 24 };
#define OUR_BREAKPOINT 0x7973706f7263656eUL /* "necropsy": what hardware_breakpoint.py has the kernel repeat */
#define ASK_AGAIN (100 * MILLISECOND)
enum { KEPT_CHANCES = 16, HANDLER_REACH = 1 << 16 };

/* Continue with a signal that is not fatal. Even an ignored one wakes a traced thread, and calls that are never
 * restarted then fail with EINTR: what becomes of those is decided elsewhere (interrupted_calls.py). Where the caller may
 * have set a thread back, it is asked again, because a handler that is to run needs the thread as it was. */
static int pass_on(struct loop *all, ref thread, int signo, struct event *out)
{
    struct thread *one = &all->table.threads[thread];
    uint64_t caught, ignored, counter;
    int interrupted = was_interrupted(one->tid, &counter);
    int asked = CALLER_RESTARTS && (interrupted || counter == one->again);
    one->again = asked ? counter : 0;
    if (asked
        || (interrupted && dispositions(one->tid, &caught, &ignored) && !(caught & BIT(signo))
            && (ignored | HARMLESS) & BIT(signo)))
        return report(out, INTERRUPTED, one->tid, all->table.processes[one->process].pid, signo);
    cont(one->tid, signo);
    return 0;
}

int asks_for_call(struct loop *all, ref thread, struct event *out)
{
    struct thread *one = &all->table.threads[thread];
    uint64_t counter;
    if (!CALLER_RESTARTS || !was_interrupted(one->tid, &counter))
        return 0;
    one->again = counter;
    return report(out, INTERRUPTED, one->tid, all->table.processes[one->process].pid, 0);
}

static int sent_by(const uint8_t *info)
{
    int32_t code, sender;
    copy_bytes(&code, info + 8, 4);
    copy_bytes(&sender, info + 16, 4);
    return code <= 0 ? sender : -1;
}

static void delivered(struct loop *all, int signo, int sender)
{
    if (signo < 65) {
        all->deliveries[signo].sender = sender;
        all->deliveries[signo].when = (double)now() / 1e9;
    }
}

/* A fault like many before it, which a handler took each time: one in CHECK_EVERY is looked up, and what looks like a
 * handler that gave up: a signal that was raised, or the same registers again, because nothing but the handler has run
 * (unless that was often so: a loop of Java code). Where it kills after all, the process is read at its EVENT_EXIT. */
static int is_routine(struct loop *all, ref thread, int signo, const uint8_t *info, const uint64_t *registers)
{
    struct thread *one = &all->table.threads[thread];
    struct process *owner = &all->table.processes[one->process];
    if (owner->faults < CHECKED_FAULTS || !one->chance || sent_by(info) >= 0)
        return 0;
    const struct chance *last = &all->table.chances[one->chance];
    int32_t before;
    uint64_t word, differs = 0;
    copy_bytes(&before, last->info, sizeof before);
    for (int at = 0; at < REGISTERS_SIZE / 8; at++) {
        copy_bytes(&word, last->registers + 8 * at, sizeof word);
        differs |= word ^ registers[at];
    }
    return before == signo && (differs || ++owner->repeats > CHECKED_FAULTS) && ++owner->faults % CHECK_EVERY != 0;
}

static uint64_t word_at(const uint8_t *from, int offset)
{
    uint64_t word;
    copy_bytes(&word, from + offset, sizeof word);
    return word;
}

/* Whether one of them may be there: most often all handlers have returned, and that is to be found out at once. */
static int may_hold(const struct loop *all, ref first, const uint64_t *stack, long words)
{
    uint64_t least = UINT64_MAX, most = 0;
    for (ref at = first; at; at = all->table.chances[at].next) {
        uint64_t pointer = word_at(all->table.chances[at].registers, STACK_AT);
        least = pointer < least ? pointer : least;
        most = pointer > most ? pointer : most;
    }
    for (long at = 0; at + 1 < words; at++)
        if (stack[at] - least <= most - least)
            for (ref one = first; one; one = all->table.chances[one].next)
                if (word_at(all->table.chances[one].registers, STACK_AT) == stack[at]
                    && word_at(all->table.chances[one].registers, COUNTER_AT) == stack[at + 1])
                    return 1;
    return 0;
}

/* Drop the faults whose handlers have returned. While one runs, its signal frame (struct sigcontext: the interrupted
 * stack pointer and program counter side by side) lies above the stack pointer; the one before it, above that fault's. */
static void forget_finished(struct loop *all, ref thread, uint64_t stack_pointer)
{
    static uint64_t stack[HANDLER_REACH / 8];
    ref *from = &all->table.threads[thread].chance;
    long words = read_stack(all->table.threads[thread].tid, stack_pointer, stack, sizeof stack) / 8;
    if (!may_hold(all, *from, stack, words))
        words = 0;
    while (*from) {
        struct chance *kept = &all->table.chances[*from];
        uint64_t pointer = word_at(kept->registers, STACK_AT), counter = word_at(kept->registers, COUNTER_AT);
        long at = 0;
        while (at + 1 < words && (stack[at] != pointer || stack[at + 1] != counter))
            at++;
        if (at + 1 < words) {
            words = read_stack(kept->tid, pointer, stack, sizeof stack) / 8;
            from = &kept->next;
        } else {
            drop_chance(&all->table, from);
        }
    }
}

/* A fault at the stack pointer of an earlier one: the code runs that had been interrupted, that handler has returned. */
static void remember(struct loop *all, ref thread, const uint8_t *info, const uint8_t *registers)
{
    struct thread *one = &all->table.threads[thread];
    uint64_t pointer = word_at(registers, STACK_AT);
    int count = 0;
    for (ref *from = &one->chance; *from; count++) {
        struct chance *kept = &all->table.chances[*from];
        if (word_at(kept->registers, STACK_AT) == pointer) {
            drop_chance(&all->table, from);
            count--;
        } else {
            from = &kept->next;
        }
    }
    if (count >= KEPT_CHANCES)
        forget_finished(all, thread, pointer);
    /* All of them run still, or there is no room: the first of them count. */
    count = 0;
    for (ref each = one->chance; each; each = all->table.chances[each].next)
        count++;
    if (count >= KEPT_CHANCES)
        drop_chance(&all->table, &one->chance);
    ref at = add_chance(&all->table, thread);
    if (!at)
        return;
    struct chance *kept = &all->table.chances[at];
    kept->at = now();
    copy_bytes(kept->info, info, SIGINFO_SIZE);
    copy_bytes(kept->registers, registers, REGISTERS_SIZE);
}

/* Somebody else asks the process to end, and it was not returned for that a short while ago. */
static int is_request(struct loop *all, ref process, int signo, int sender)
{
    struct process *owner = &all->table.processes[process];
    if (signo > 64 || !(all->requests & BIT(signo)) || all->root_ended || owner->told || sender == owner->pid)
        return 0;
    uint64_t time = now();
    if (time < owner->quiet_until)
        return 0;
    owner->quiet_until = time + ASK_AGAIN;
    return 1;
}

int is_breakpoint(int tid)
{
    uint8_t info[SIGINFO_SIZE];
    int32_t code;
    if (trace(PTRACE_GETSIGINFO, tid, 0, (unsigned long)info) < 0)
        return 0;
    copy_bytes(&code, info + SI_CODE, sizeof code);
    return code == TRAP_PERF && word_at(info, SI_PERF_DATA) == OUR_BREAKPOINT;
}

int on_signal(struct loop *all, ref thread, int signo, struct event *out)
{
    struct thread *one = &all->table.threads[thread];
    struct process *owner = &all->table.processes[one->process];
    int tid = one->tid, is_root = owner->pid == all->root;
    uint8_t info[SIGINFO_SIZE];
    if (HARMLESS & BIT(signo) && !is_root)
        return pass_on(all, thread, signo, out);
    if (trace(PTRACE_GETSIGINFO, tid, 0, (unsigned long)info) < 0)
        return 0; /* it was killed, and is in no stop: PTRACE_CONT could only let it out of its EVENT_EXIT, unseen */
    int sender = sent_by(info);
    if (is_root && sender >= 0)
        delivered(all, signo, sender);
    if ((HARMLESS | STOPS) & BIT(signo))
        return pass_on(all, thread, signo, out);
    struct signal *last = signal_of(&all->table, one->process, signo);
    if (last)
        copy_bytes(last->info, info, SIGINFO_SIZE);
    if (is_root && sender == all->front && *all->timed_out)
        return report(out, ASKED, tid, owner->pid, signo);
    if (!(CORE & BIT(signo)) || all->root_ended) {
        if (is_request(all, one->process, signo, sender))
            return report(out, REQUESTED, tid, owner->pid, signo);
        return pass_on(all, thread, signo, out);
    }
    uint64_t registers[REGISTERS_SIZE / 8];
    read_registers(tid, registers);
    if (!is_routine(all, thread, signo, info, registers)) {
        uint64_t caught = 0, ignored = 0;
        if (dispositions(tid, &caught, &ignored) && !((caught | ignored) & BIT(signo))) {
            keep_stopped(all, thread, signo);
            begin_hold(all, one->process, 1);
            return report(out, FATAL, tid, owner->pid, signo);
        }
        if (caught & BIT(signo) && owner->faults < CHECKED_FAULTS)
            owner->faults++;
    }
    if (sender < 0 || sender == owner->pid)
        remember(all, thread, info, (const uint8_t *)registers);
    if (is_request(all, one->process, signo, sender))
        return report(out, REQUESTED, tid, owner->pid, signo);
    if (sender >= 0)
        return pass_on(all, thread, signo, out);
    cont(tid, signo);
    return 0;
}
