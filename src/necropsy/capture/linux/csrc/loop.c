/* The part of the tracer that decides nothing, and that therefore may not cost anything.
 *
 * New threads and processes, healthy ends and signals that do not kill are served here; `necropsy_next` returns what
 * takes a decision. What was served is written to a journal, in order, which the caller reads before it acts on what
 * was returned. `python_loop.py` does the same work where there is no compiler; both have the same tests.
 *
 * A stop is only looked at (WNOWAIT) and then continued, where nothing has to be decided: if this process is killed
 * in between, the kernel still knows the signal that the thread was stopped at.
 */
#include "probe.h"
#include "table.h"

enum {
    PTRACE_PEEKUSER = 3,
    PTRACE_POKEUSER = 6,
    PTRACE_CONT = 7,
    PTRACE_GETREGS = 12,
    PTRACE_GETEVENTMSG = 0x4201,
    PTRACE_GETSIGINFO = 0x4202,
    PTRACE_INTERRUPT = 0x4207,
    PTRACE_LISTEN = 0x4208
};
enum { EVENT_FORK = 1, EVENT_VFORK = 2, EVENT_CLONE = 3, EVENT_EXEC = 4, EVENT_EXIT = 6, EVENT_STOP = 128 };
enum { P_ALL = 0, P_PID = 1, WNOHANG = 1, WSTOPPED = 2, WEXITED = 4, WNOWAIT = 0x01000000, WALL = 0x40000000 };
enum { CLD_EXITED = 1, CLD_KILLED = 2, CLD_DUMPED = 3, CLD_TRAPPED = 4, CLD_STOPPED = 5 };
enum { SIGTRAP = 5, SIGKILL = 9, SIGUSR1 = 10, SIGCHLD = 17, SIGCONT = 18, SIGURG = 23, SIGWINCH = 28, SIGSYS = 31 };
enum { AT_RAX = 80, AT_ORIG_RAX = 120, AT_CS = 136, USER_64 = 0x33, NR_EXIT = 60, ERESTARTNOHAND = 514 };

#define BIT(signo) (1UL << ((signo) - 1))
/* Their default action is to dump core (signal(7)). */
#define CORE (BIT(3) | BIT(4) | BIT(5) | BIT(6) | BIT(7) | BIT(8) | BIT(11) | BIT(24) | BIT(25) | BIT(31))
#define HARMLESS (BIT(SIGCHLD) | BIT(SIGURG) | BIT(SIGWINCH) | BIT(SIGCONT))
#define STOPS (BIT(19) | BIT(20) | BIT(21) | BIT(22))

enum { JOURNAL = 4096, EARLY = 1 << 16, ENDED_EARLY = 64, HOLDS = 1 << 12 };
enum { TEXT = 1 << 20, MOST_TEXT = 8192, FILES = 1024, ENVIRONMENT = 1 << 16 };
/* With so many threads the kernel, which goes through all of them, takes longer than a further call. */
enum { CROWD = 256 };
enum { CHECKED_FAULTS = 64, CHECK_EVERY = 64, LOOK_EVERY = 64 };
#define MILLISECOND 1000000UL
#define EARLY_WAIT (20 * MILLISECOND)
#define FREEZE_WAIT (2000 * MILLISECOND)
#define LONGEST_FREEZE (8000 * MILLISECOND)
#define LOOK (50 * MILLISECOND)
#define GONE_FOR (1000 * MILLISECOND)
#define HEAD_START 40000 /* ns */
#define IN_A_ROW (2 * MILLISECOND)

/* What `necropsy_next` returns; the numbers are repeated in c_loop.py. */
enum kind {
    NOTHING, /* the time is up */
    OVER,    /* nobody is left */
    CHILD,   /* a process that is not traced has ended: tid, value = wait status */
    EXECUTED, /* stopped at its exec: tid, value = former id of the thread */
    RESTS,   /* stopped by a signal, and to be left so: tid, value = signal */
    RESUMED, /* to be continued after that: tid */
    FATAL,   /* stopped at a signal that kills: tid, value = signal; the other threads are being stopped */
    HELD,    /* pid; value = threads that did not stop in time */
    ASKED,   /* the command is stopped at a signal that the front sent: tid, value = signal */
    EXITING, /* stopped at its end: tid, value = wait status */
    ENDED,   /* a process has ended that more is to be told of: tid, value = wait status */
    DRAIN,   /* the journal is full */
    INTERRUPTED, /* stopped at a signal that it ignores, which has interrupted a call: tid, value = signal */
};
enum entry { STARTED = 1, FINISHED = 2, BECAME = 3 };

struct event {
    int32_t kind, tid, pid, value;
};

/* STARTED: tid, of process pid, created by parent (0: not known); value = the event. FINISHED: value = wait status.
 * BECAME: what pid has executed: the file's path, then its arguments, from `text` on. */
struct record {
    int32_t kind, tid, pid, parent, value;
    uint32_t peak_rss, peak_size; /* KiB */
    uint32_t text, path_length, words_length;
    uint64_t at; /* ns of the monotonic clock */
};

/* A file that was executed before, and of which nothing more is to be asked. */
struct file {
    uint64_t device, inode, changed_s, changed_ns;
};

struct early {
    int32_t tid;
    uint64_t since;
};

struct delivery {
    int64_t sender;
    double when;
};

struct loop {
    struct table table;
    struct record *journal;
    char *text, *environment;
    struct file *files;
    struct early *early; /* threads whose first stop came before the event of their creator */
    ref *queue;          /* held stops that wait for their ordinary turn */
    ref *holds;          /* processes that are being stopped */
    int32_t written, text_used, early_count, queue_first, queue_last, hold_count;
    int32_t root, front, always, root_ended, members;
    uint32_t run;
    ref leaving; /* a process that has ended, kept until the caller has seen what is known of it */
    uint64_t *beats;
    struct delivery *deliveries;
    const uint32_t *timed_out;
    struct {
        int32_t tid, status;
        uint64_t at;
    } gone[ENDED_EARLY]; /* ends of threads that nobody had told of yet */
    int32_t gone_next;
    uint64_t last_birth, begins_at; /* ns of the monotonic clock */
    int32_t newborn;                /* a new thread whose creator has a head start until `begins_at`; 0 for none */
    int32_t creator, created, next; /* who created last; whose stop is likely to come next: the kernel goes through all of them */
    /* In a crowd SIGCHLD says who has stopped. One that is pending swallows the next: then all are gone through (owed),
     * but so rarely that most of the time is left for something better. */
    int32_t owed, woken;
    uint64_t scan_after, sweep_after, late_after; /* ns of the monotonic clock */
    int32_t *sweep; /* a ring: threads that were asked to stop */
    uint32_t sweep_first, sweep_last;
};

static struct loop the_loop; /* one for each process: a tracer traces one command */

/* ------------------------------------------------------------ the kernel */

static uint64_t now(void)
{
    struct timespec time = {0, 0};
    call3(SYS_clock_gettime, 1, (long)&time, 0);
    return (uint64_t)time.seconds * 1000000000UL + (uint64_t)time.nanoseconds;
}

static long trace(int request, int tid, unsigned long address, unsigned long data)
{
    return call4(SYS_ptrace, request, tid, (long)address, (long)data);
}

static void cont(int tid, int signo)
{
    trace(PTRACE_CONT, tid, 0, (unsigned long)signo);
}

static uint64_t peek(int tid, unsigned long offset)
{
    uint64_t word = 0;
    trace(PTRACE_PEEKUSER, tid, offset, (unsigned long)&word);
    return word;
}

static unsigned long message(int tid)
{
    unsigned long word = 0;
    trace(PTRACE_GETEVENTMSG, tid, 0, (unsigned long)&word);
    return word;
}

/* Take the stop, so that the next wait does not see it again. Returns it, or a newer one that has come in its place: a
 * thread that is killed in a stop goes on to its EVENT_EXIT. */
static int take_stop(int tid, int stop)
{
    int status = 0;
    if (call4(SYS_wait4, tid, (long)&status, WALL | WNOHANG, 0) == tid && (status & 0xff) == 0x7f)
        return status >> 8;
    return stop;
}

/* The thread was killed in this stop (event << 8 | signal), and something new is to be waited for: PTRACE_CONT would hide
 * that. A stop that was only looked at is still there. */
static int has_moved_on(int tid, int stop)
{
    int32_t info[32] = {0};
    long failed = call5(SYS_waitid, P_PID, tid, (long)info, WEXITED | WSTOPPED | WNOWAIT | WNOHANG | WALL, 0);
    return failed < 0 || (info[4] && (info[2] != CLD_TRAPPED || info[6] != stop));
}

static char *decimal(char *at, unsigned value)
{
    char digits[12];
    int count = 0;
    do
        digits[count++] = (char)('0' + value % 10);
    while (value /= 10);
    while (count)
        *at++ = digits[--count];
    return at;
}

enum { AT_CWD = -100, O_CLOEXEC = 0x80000 };

static void proc_path(char *path, int tid, const char *name)
{
    copy_bytes(path, "/proc/", 6);
    path = decimal(path + 6, (unsigned)tid);
    while ((*path++ = *name++))
        ;
}

/* A file of /proc/TID; how many bytes were read, 0 where it cannot be. */
static long read_proc(int tid, const char *name, char *to, long size)
{
    char path[40];
    proc_path(path, tid, name);
    long file = call4(SYS_openat, AT_CWD, (long)path, O_CLOEXEC, 0);
    if (file < 0)
        return 0;
    long got = call3(SYS_read, file, (long)to, size);
    call1(SYS_close, file);
    return got > 0 ? got : 0;
}

/* /proc/TID/status into `text` (NUL at its end); its length, 0 where it cannot be read. */
static long read_status(int tid, char *text, long size)
{
    long got = read_proc(tid, "/status", text, size - 1);
    text[got] = 0;
    return got;
}

/* The number behind `name` (with its colon) at the beginning of a line; -1 where there is no such line. */
static long field(const char *text, const char *name, int base)
{
    for (const char *line = text; *line;) {
        const char *at = line, *wanted = name;
        while (*wanted && *at == *wanted)
            at++, wanted++;
        if (!*wanted) {
            unsigned long value = 0;
            while (*at == ' ' || *at == '\t')
                at++;
            for (;; at++) {
                int digit = *at >= '0' && *at <= '9' ? *at - '0' : *at >= 'a' && *at <= 'f' ? *at - 'a' + 10 : 99;
                if (digit >= base)
                    break;
                value = value * (unsigned long)base + (unsigned long)digit;
            }
            return (long)value;
        }
        while (*line && *line != '\n')
            line++;
        line += *line == '\n';
    }
    return -1;
}

/* ------------------------------------------------------------ the journal */

static struct record *record(struct loop *all, int kind, int tid, int pid)
{
    struct record *one = &all->journal[all->written++];
    clear_bytes(one, sizeof *one);
    one->kind = kind;
    one->tid = tid;
    one->pid = pid;
    one->at = now();
    return one;
}

/* The log's probe hears this process from now on. */
static void tell_probe(const struct loop *all, int pid)
{
    if (all->members >= 0)
        probe_add(all->members, all->run, pid);
}

static ref start_process(struct loop *all, int pid)
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

/* A thread that nobody told of: /proc says whose it is. */
static ref adopt(struct loop *all, int tid)
{
    char text[4096];
    if (!read_status(tid, text, sizeof text))
        return 0;
    int pid = (int)field(text, "Tgid:", 10), parent = (int)field(text, "PPid:", 10);
    return started(all, tid, pid > 0 ? pid : tid, parent > 0 ? parent : 0, 0);
}

static int take_early(struct loop *all, int tid)
{
    for (int at = 0; at < all->early_count; at++)
        if (all->early[at].tid == tid) {
            all->early[at] = all->early[--all->early_count];
            return 1;
        }
    return 0;
}

static void finished(struct loop *all, int tid, int pid, int status, const struct process *process)
{
    struct record *one = record(all, FINISHED, tid, pid);
    one->value = status;
    if (process && tid == pid) {
        one->peak_rss = process->peak_rss;
        one->peak_size = process->peak_size;
    }
}

/* A new thread takes some time to begin where it is not traced, and its creator does not wait for it. Programs that rely
 * on that by mistake must not live longer with us than without. Of many threads in a row only the first one waits; what
 * else happens is served meanwhile. The stop of `tid` was waited for. */
static void begin(struct loop *all, int tid)
{
    uint64_t time = now(), before = all->last_birth;
    all->last_birth = time;
    if (all->newborn || time <= before + IN_A_ROW) {
        cont(tid, 0);
        return;
    }
    all->newborn = tid;
    all->begins_at = time + HEAD_START;
}

/* The event of `creator` announces a new thread or process. The creator goes on first, as it would untraced. */
static void created(struct loop *all, ref creator, int event, int tid, int go_on)
{
    struct thread *by = &all->table.threads[creator];
    int pid = all->table.processes[by->process].pid;
    int held = all->table.processes[by->process].holding;
    if (go_on)
        cont(by->tid, 0);
    int waits = take_early(all, tid);
    all->creator = by->tid;
    all->next = waits ? 0 : tid;
    all->created = tid;
    if (thread_of(&all->table, tid))
        return;
    int own = event != EVENT_CLONE || call3(SYS_tgkill, pid, tid, 0) == -ESRCH ? tid : pid, parent = pid;
    if (event == EVENT_CLONE && own == tid && call3(SYS_tgkill, tid, tid, 0) == -ESRCH && !waits)
        own = pid; /* it has ended by now; of a thread that is likelier */
    char text[4096];
    if (event == EVENT_CLONE && own == tid && read_status(tid, text, sizeof text)) {
        long said = field(text, "Tgid:", 10);
        own = said > 0 ? (int)said : tid;
        said = field(text, "PPid:", 10); /* not the creator where CLONE_PARENT was asked for */
        parent = own != tid ? pid : said > 0 ? (int)said : pid;
    }
    ref thread = started(all, tid, own, parent, event);
    for (int at = 0; at < ENDED_EARLY; at++)
        if (all->gone[at].tid == tid && now() < all->gone[at].at + GONE_FOR) {
            all->gone[at].tid = 0;
            finished(all, tid, own, all->gone[at].status, NULL);
            if (thread && own == tid)
                drop_process(&all->table, all->table.threads[thread].process);
            else if (thread)
                drop_thread(&all->table, thread);
            return;
        }
    if (!waits || !thread)
        return;
    if (held && own == pid) {
        struct thread *one = &all->table.threads[thread];
        one->held = 1;
        one->status = EVENT_STOP << 8 | SIGTRAP;
        all->table.processes[one->process].running--;
    } else if (go_on) {
        begin(all, tid);
    } else {
        cont(tid, 0);
    }
}

/* ------------------------------------------------------------ stopping a process */

/* All threads of a process that is being stopped stand. */
static int is_held(const struct loop *all, ref process)
{
    int is_awaited = 0;
    for (int at = 0; at < all->hold_count; at++)
        is_awaited |= all->holds[at] == process;
    return is_awaited && all->table.processes[process].running <= 0;
}

static void end_hold(struct loop *all, ref process)
{
    for (int at = 0; at < all->hold_count; at++)
        if (all->holds[at] == process)
            all->holds[at] = all->holds[--all->hold_count];
}

static void keep_stopped(struct loop *all, ref thread, int status)
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

static void begin_hold(struct loop *all, ref process, int interrupt)
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

static int report(struct event *out, int kind, int tid, int pid, int value)
{
    out->kind = kind;
    out->tid = tid;
    out->pid = pid;
    out->value = value;
    return 1;
}

/* Where all threads of the process stand, say so, once. */
static int report_if_held(struct loop *all, ref process, struct event *out)
{
    struct process *one = &all->table.processes[process];
    if (!is_held(all, process))
        return 0;
    end_hold(all, process);
    return report(out, HELD, one->pid, one->pid, 0);
}

static int is_running(int tid)
{
    char text[4096], state;
    if (!read_status(tid, text, sizeof text))
        return 0;
    for (const char *at = text; *at; at++)
        if (at[0] == '\n' && at[1] == 'S' && at[2] == 't' && at[6] == ':') {
            state = at[8];
            return state != 'Z' && state != 'X';
        }
    return 1;
}

/* A process whose time for stopping is up, or of which those that still ran have died unseen. */
static int report_late(struct loop *all, struct event *out, uint64_t time)
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

/* ------------------------------------------------------------ signals */

/* Which signals the process handles and which it ignores; 0 where that cannot be read. */
static int dispositions(int tid, uint64_t *caught, uint64_t *ignored)
{
    char text[4096];
    if (!read_status(tid, text, sizeof text))
        return 0;
    long has = field(text, "SigCgt:", 16);
    *caught = (uint64_t)has;
    *ignored = (uint64_t)field(text, "SigIgn:", 16);
    return has != -1 || text[0] != 0;
}

/* Continue with a signal that is not fatal. Even an ignored one wakes a traced thread, and calls that are never
 * restarted then fail with EINTR: what becomes of those is decided elsewhere (interrupted.py). */
static int pass_on(struct loop *all, ref thread, int signo, struct event *out)
{
    struct thread *one = &all->table.threads[thread];
    uint64_t caught, ignored;
    if (peek(one->tid, AT_RAX) == (uint64_t)-EINTR && (int64_t)peek(one->tid, AT_ORIG_RAX) >= 0
        && dispositions(one->tid, &caught, &ignored) && !(caught & BIT(signo)) && (ignored | HARMLESS) & BIT(signo))
        return report(out, INTERRUPTED, one->tid, all->table.processes[one->process].pid, signo);
    cont(one->tid, signo);
    return 0;
}

/* A call that our own PTRACE_INTERRUPT has interrupted goes on. Those that were made by 64-bit code, and that may be made
 * again: the table of interrupted.py. */
static void restart_call(int tid)
{
    static const int16_t calls[] = {0,  1,  19, 20, 42,  43,  44,  45,  46,  47,  65,
                                    128, 208, 220, 232, 281, 288, 299, 307, 333, 426, 441};
    if (peek(tid, AT_RAX) != (uint64_t)-EINTR || peek(tid, AT_CS) != USER_64)
        return;
    uint64_t number = peek(tid, AT_ORIG_RAX);
    for (size_t at = 0; at < sizeof calls / sizeof *calls; at++)
        if ((uint64_t)calls[at] == number)
            trace(PTRACE_POKEUSER, tid, AT_RAX, (unsigned long)-ERESTARTNOHAND);
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

static void remember(struct loop *all, ref thread, const uint8_t *info, const uint64_t *registers)
{
    struct chance *kept = chance_of(&all->table, thread);
    if (kept) {
        copy_bytes(kept->info, info, SIGINFO_SIZE);
        copy_bytes(kept->registers, registers, REGISTERS_SIZE);
    }
}

static int on_signal(struct loop *all, ref thread, int signo, struct event *out)
{
    struct thread *one = &all->table.threads[thread];
    struct process *owner = &all->table.processes[one->process];
    int tid = one->tid, is_root = owner->pid == all->root;
    uint8_t info[SIGINFO_SIZE];
    if ((HARMLESS & BIT(signo) && !is_root) || trace(PTRACE_GETSIGINFO, tid, 0, (unsigned long)info) < 0)
        return pass_on(all, thread, signo, out);
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
    if (!(CORE & BIT(signo)) || all->root_ended)
        return pass_on(all, thread, signo, out);
    uint64_t registers[REGISTERS_SIZE / 8] = {0};
    trace(PTRACE_GETREGS, tid, 0, (unsigned long)registers);
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
        remember(all, thread, info, registers);
    if (sender >= 0)
        return pass_on(all, thread, signo, out);
    cont(tid, signo);
    return 0;
}

/* ------------------------------------------------------------ ends */

static void read_peaks(int tid, struct process *process)
{
    char text[4096];
    if (process->peak_size || !read_status(tid, text, sizeof text))
        return;
    long size = field(text, "VmPeak:", 10), rss = field(text, "VmHWM:", 10);
    if (size > 0 && rss > 0) {
        process->peak_size = (uint32_t)size;
        process->peak_rss = (uint32_t)rss;
    }
}

static int others_live(const struct loop *all, ref thread)
{
    const struct thread *one = &all->table.threads[thread];
    return all->table.processes[one->process].running > (!one->held && !one->exiting);
}

static void let_exit(struct loop *all, ref thread)
{
    struct thread *one = &all->table.threads[thread];
    if (!one->exiting && !one->held)
        all->table.processes[one->process].running--;
    one->exiting = 1;
    cont(one->tid, 0);
}

static int on_exit(struct loop *all, ref thread, struct event *out)
{
    struct thread *one = &all->table.threads[thread];
    struct process *owner = &all->table.processes[one->process];
    int ending = (int)message(one->tid), killed = ending & 0x7f;
    int alone = peek(one->tid, AT_ORIG_RAX) == NR_EXIT && !killed && others_live(all, thread);
    if (!alone && (owner->executed || owner->pid == all->root))
        read_peaks(one->tid, owner);
    if (killed && !all->root_ended && !owner->told && (killed == SIGSYS || !owner->killed)) {
        owner->killed = 1;
        return report(out, EXITING, one->tid, owner->pid, ending);
    }
    if (all->always && !killed && !alone && !owner->measured) {
        owner->measured = 1;
        return report(out, EXITING, one->tid, owner->pid, ending);
    }
    let_exit(all, thread);
    return 0;
}

static int on_end(struct loop *all, int tid, int status, uint32_t peak_rss, struct event *out)
{
    ref thread = thread_of(&all->table, tid);
    if (!thread) {
        int slot = all->gone_next++ % ENDED_EARLY;
        all->gone[slot].tid = tid;
        all->gone[slot].status = status;
        all->gone[slot].at = now();
        return take_early(all, tid) ? 0 : report(out, CHILD, tid, tid, status);
    }
    ref process = all->table.threads[thread].process;
    struct process *owner = &all->table.processes[process];
    int pid = owner->pid;
    if (!owner->executed && tid == pid && !owner->peak_rss)
        owner->peak_rss = peak_rss; /* of a process that is what it was forked as, the kernel counted nothing else */
    finished(all, tid, pid, status, owner);
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

/* ------------------------------------------------------------ one stop */

static struct file *place_of(const struct loop *all, const struct file *wanted)
{
    struct file *found = NULL;
    for (unsigned at = (unsigned)wanted->inode, tries = 0; tries < 8; tries++, at++) {
        found = &all->files[at % FILES];
        if (!found->inode || (found->inode == wanted->inode && found->device == wanted->device))
            break;
    }
    return found; /* the last one that was looked at gives way */
}

static int file_of(int pid, struct file *to)
{
    char path[40];
    uint64_t about[18]; /* struct stat: st_dev, st_ino, st_nlink, st_mode ..., st_ctime, st_ctime_nsec */
    proc_path(path, pid, "/exe");
    if (call4(SYS_newfstatat, AT_CWD, (long)path, (long)about, 0) < 0)
        return 0;
    *to = (struct file){about[0], about[1], about[13], about[14]};
    return 1;
}

/* Nothing but its name is of interest: the file is known as ordinary, and no library was put before the others. */
static int is_ordinary(const struct loop *all, int pid)
{
    struct file file;
    if (!file_of(pid, &file))
        return 0;
    const struct file *known = place_of(all, &file);
    if (known->inode != file.inode || known->device != file.device || known->changed_s != file.changed_s
        || known->changed_ns != file.changed_ns)
        return 0;
    static const char name[] = "LD_PRELOAD=";
    long size = read_proc(pid, "/environ", all->environment, ENVIRONMENT);
    for (long at = 0; at < size; at++) {
        long same = 0;
        while (name[same] && at + same < size && all->environment[at + same] == name[same])
            same++;
        if (!name[same])
            return 0;
        while (at < size && all->environment[at])
            at++;
    }
    return size < ENVIRONMENT;
}

/* What an ordinary process has executed; 0 where it takes more room than there is. */
static int became(struct loop *all, int pid)
{
    char path[40], *text = all->text + all->text_used;
    proc_path(path, pid, "/exe");
    long path_length = call4(SYS_readlinkat, AT_CWD, (long)path, (long)text, MOST_TEXT / 2);
    if (path_length <= 0 || path_length == MOST_TEXT / 2)
        return 0;
    long words_length = read_proc(pid, "/cmdline", text + path_length, MOST_TEXT / 2);
    if (!words_length || words_length == MOST_TEXT / 2)
        return 0;
    struct record *one = record(all, BECAME, pid, pid);
    one->text = (uint32_t)all->text_used;
    one->path_length = (uint32_t)path_length;
    one->words_length = (uint32_t)words_length;
    all->text_used += (int32_t)(path_length + words_length);
    return 1;
}

static int on_exec(struct loop *all, ref thread, int tid, struct event *out)
{
    ref process = all->table.threads[thread].process;
    struct process *owner = &all->table.processes[process];
    int pid = owner->pid, decides = owner->holding || owner->told || pid == all->root;
    end_hold(all, process);
    while (owner->first)
        drop_thread(&all->table, owner->first);
    owner->running = 0;
    owner->executed = 1;
    owner->holding = owner->killed = owner->told = owner->measured = 0;
    owner->peak_rss = owner->peak_size = owner->faults = owner->repeats = 0;
    add_thread(&all->table, process, pid);
    if ((int)message(tid) != pid)
        tell_probe(all, pid); /* the kernel knows it by its first thread, which may be another one now */
    if (decides || !is_ordinary(all, pid) || !became(all, pid))
        return report(out, EXECUTED, tid, pid, (int)message(tid));
    cont(tid, 0);
    return 0;
}

/* Serve a stop: `status` is event << 8 | signal. `consumed`: the kernel has forgotten it already. */
static int on_stop(struct loop *all, int tid, int status, int consumed, struct event *out)
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
        if (tid == all->created) {
            all->created = 0;
            int current = consumed ? status : take_stop(tid, status);
            if (current != status)
                return on_stop(all, tid, current, 1, out);
            begin(all, tid);
        } else {
            cont(tid, 0);
        }
        return 0;
    case EVENT_CLONE:
    case EVENT_FORK:
    case EVENT_VFORK:
        if (said)
            created(all, thread, event, said, 1);
        else
            cont(tid, 0);
        return 0;
    case EVENT_EXIT:
        return on_exit(all, thread, out);
    default:
        cont(tid, 0);
        return 0;
    }
}

/* Threads whose creator has said nothing for too long: it was killed in the middle. */
static void adopt_early(struct loop *all, uint64_t time)
{
    for (int at = 0; at < all->early_count;) {
        struct early one = all->early[at];
        if (time < one.since + EARLY_WAIT) {
            at++;
            continue;
        }
        all->early[at] = all->early[--all->early_count];
        ref thread = thread_of(&all->table, one.tid);
        if (!thread)
            thread = adopt(all, one.tid);
        if (thread && all->table.processes[all->table.threads[thread].process].holding)
            keep_stopped(all, thread, EVENT_STOP << 8 | SIGTRAP);
        else
            cont(one.tid, 0);
    }
}

/* ------------------------------------------------------------ waiting */

enum { WANTED = WEXITED | WSTOPPED | WNOWAIT | WALL };

/* What is to be waited for of one thread, in `info` (struct siginfo; its pid is 0 where there is nothing). */
static long look_at(int tid, int32_t *info)
{
    info[4] = 0;
    return call5(SYS_waitid, P_PID, tid, (long)info, WANTED | WNOHANG, 0);
}

/* Wait for SIGCHLD, or for the reader's signal, for at most so many ns; who has sent SIGCHLD, or 0. */
static int signalled(struct loop *all, uint64_t wait)
{
    uint64_t wanted[1] = {BIT(SIGCHLD) | BIT(SIGUSR1)};
    int32_t info[32] = {0};
    struct timespec limit = {(int64_t)(wait / 1000000000UL), (int64_t)(wait % 1000000000UL)};
    long signo = call4(SYS_rt_sigtimedwait, (long)wanted, (long)info, (long)&limit, 8);
    all->woken |= signo == SIGUSR1;
    return signo == SIGCHLD ? info[4] : 0;
}

/* The threads that were asked to stop, one after the other. */
static int sweep(struct loop *all, int32_t *info)
{
    uint64_t begun = now();
    if (begun < all->sweep_after)
        return 0;
    for (uint32_t left = all->sweep_last - all->sweep_first; left; left--) {
        int tid = all->sweep[all->sweep_first++ % MOST_THREADS];
        ref at = thread_of(&all->table, tid);
        struct thread *one = &all->table.threads[at];
        if (!at || one->held || one->exiting || !all->table.processes[one->process].holding)
            continue;
        if (look_at(tid, info) == 0 && info[4])
            return 1;
        all->sweep[all->sweep_last++ % MOST_THREADS] = tid;
    }
    uint64_t ended = now();
    all->sweep_after = ended + 2 * (ended - begun);
    return 0;
}

/* The next stop or end of many threads; as `look`. */
static long look_in_crowd(struct loop *all, int32_t *info)
{
    int tid;
    while ((tid = signalled(all, 0))) {
        all->owed = 1;
        if (look_at(tid, info) == 0 && info[4])
            return 0;
    }
    if (all->sweep_first != all->sweep_last && sweep(all, info))
        return 0;
    info[4] = 0;
    uint64_t begun = now();
    if (!all->owed || begun < all->scan_after)
        return 0;
    long failed = call5(SYS_waitid, P_ALL, 0, (long)info, WANTED | WNOHANG, 0);
    uint64_t ended = now();
    all->scan_after = ended + 2 * (ended - begun);
    all->owed = failed == 0 && info[4];
    return failed;
}

/* The next stop or end, in `info`; its pid is 0 where there is none now, unless `patient`. 0, or -errno. */
static long look(struct loop *all, int patient, int32_t *info)
{
    int tid = all->next;
    all->next = 0;
    if (tid && look_at(tid, info) == 0 && info[4])
        return 0;
    if (all->table.live > CROWD)
        return look_in_crowd(all, info);
    all->owed = 1;
    info[4] = 0;
    return call5(SYS_waitid, P_ALL, 0, (long)info, WANTED | (patient ? 0 : WNOHANG), 0);
}

/* Until something happens, or until this time. */
static void wait_until(struct loop *all, uint64_t until, uint64_t time)
{
    int is_crowded = all->table.live > CROWD;
    if (is_crowded && all->owed && all->scan_after < until)
        until = all->scan_after;
    if (is_crowded && all->sweep_first != all->sweep_last && all->sweep_after < until)
        until = all->sweep_after;
    if (all->newborn && all->begins_at < until)
        until = all->begins_at;
    uint64_t wait = until > time ? until - time : 0;
    uint64_t most = all->early_count ? EARLY_WAIT : all->hold_count ? LOOK : wait;
    int tid = signalled(all, wait < most ? wait : most);
    if (tid) {
        all->owed = 1;
        all->next = is_crowded ? tid : 0;
    }
}

/* ------------------------------------------------------------ what Python calls */

EXPORT int necropsy_open(int root, int front, int always, int members, unsigned run, void *beats, void *deliveries, void *timed_out)
{
    struct loop *all = &the_loop;
    clear_bytes(all, sizeof *all);
    call3(SYS_prctl, 29, 1, 0); /* PR_SET_TIMERSLACK: short sleeps are short */
    all->journal = reserve(sizeof(struct record) * JOURNAL);
    all->text = reserve(TEXT);
    all->environment = reserve(ENVIRONMENT);
    all->files = reserve(sizeof(struct file) * FILES);
    all->early = reserve(sizeof(struct early) * EARLY);
    all->queue = reserve(sizeof(ref) * MOST_THREADS);
    all->holds = reserve(sizeof(ref) * HOLDS);
    all->sweep = reserve(sizeof(int32_t) * MOST_THREADS);
    if (table_open(&all->table) || !all->journal || !all->text || !all->environment || !all->files || !all->early || !all->queue || !all->holds
        || !all->sweep)
        return -1;
    all->root = root;
    all->front = front;
    all->always = always;
    all->members = members;
    all->run = run;
    all->beats = beats;
    all->deliveries = deliveries;
    all->timed_out = timed_out;
    ref process = start_process(all, root);
    return process && add_thread(&all->table, process, root) ? 0 : -1;
}

EXPORT struct record *necropsy_journal(void)
{
    return the_loop.journal;
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

/* Serve stops until one takes a decision, or until `wait_ms` have passed (-1: for as long as it takes). */
EXPORT void necropsy_next(struct event *out, long wait_ms)
{
    struct loop *all = &the_loop;
    uint64_t until = wait_ms < 0 ? UINT64_MAX : now() + (uint64_t)wait_ms * MILLISECOND;
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
        if (all->newborn && now() >= all->begins_at) {
            if (!has_moved_on(all->newborn, EVENT_STOP << 8 | SIGTRAP))
                cont(all->newborn, 0);
            all->newborn = 0;
        }
        int patient = until == UINT64_MAX && !all->hold_count && !all->early_count && !all->newborn;
        int32_t info[32] = {0};
        long failed = look(all, patient, info);
        if (all->woken) {
            all->woken = 0;
            all->next = failed == 0 ? info[4] : 0;
            report(out, NOTHING, 0, 0, 0); /* a reader has finished (reading.py) */
            return;
        }
        if (failed == -ECHILD) {
            report(out, OVER, 0, 0, 0);
            return;
        }
        int code = info[2], tid = info[4], status = info[6];
        if (failed < 0)
            continue;
        if (tid) {
            if (++*all->beats % LOOK_EVERY == 0 && until != UINT64_MAX && now() >= until)
                until = 0; /* events without end must not keep the caller from what it waits for */
            if (code == CLD_TRAPPED) {
                if (on_stop(all, tid, status, 0, out))
                    return;
            } else if (code == CLD_STOPPED) {
                int ignored; /* a child of ours that is not traced was stopped: not our business */
                call4(SYS_wait4, tid, (long)&ignored, WALL | WNOHANG | 2, 0);
            } else {
                int end = 0;
                uint64_t used[18] = {0}; /* struct rusage: two times of 16 bytes, ru_maxrss in KiB, ... */
                /* To sum up what a process used, the kernel goes through its threads: only the last of them is asked. */
                long usage = process_of(&all->table, tid) ? (long)used : 0;
                if (call4(SYS_wait4, tid, (long)&end, WALL | WNOHANG, usage) == tid) {
                    /* It may have been killed in the middle of a stop: that stop is over too. */
                    if ((end & 0xff) == 0x7f ? on_stop(all, tid, end >> 8, 1, out) : on_end(all, tid, end, (uint32_t)used[4], out))
                        return;
                }
            }
            continue;
        }
        uint64_t time = now();
        adopt_early(all, time);
        if (all->hold_count && report_late(all, out, time))
            return;
        if (time >= until) {
            report(out, NOTHING, 0, 0, 0);
            return;
        }
        wait_until(all, until, time);
    }
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

/* Let all threads of a process go on: `first`, with this signal, before the others, which get their ordinary turn. */
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
    if (leader && all->table.threads[leader].held) {
        struct thread *thread = &all->table.threads[leader];
        thread->held = 0;
        one->running += !thread->exiting;
        if (thread->status >> 8 == EVENT_EXIT)
            let_exit(all, leader);
        else if (!has_moved_on(first, thread->status))
            cont(first, signo);
    }
    for (ref at = one->first; at; at = all->table.threads[at].next) {
        struct thread *thread = &all->table.threads[at];
        if (!thread->held)
            continue;
        thread->held = 0;
        one->running += !thread->exiting;
        if (thread->status == (EVENT_STOP << 8 | SIGTRAP) && !thread->rested) {
            if (!has_moved_on(thread->tid, thread->status)) {
                restart_call(thread->tid);
                cont(thread->tid, 0);
            }
        } else if (thread->status >> 8 == EVENT_CLONE || thread->status >> 8 == EVENT_FORK
                   || thread->status >> 8 == EVENT_VFORK) {
            if (!has_moved_on(thread->tid, thread->status)) /* whom it created is in the journal already */
                cont(thread->tid, 0);
        } else if (!thread->queued) {
            thread->queued = 1;
            all->queue[all->queue_last++ % MOST_THREADS] = at;
        }
    }
}

/* What the process has just executed is nothing special: from now on, whoever executes it need not be returned. */
EXPORT void necropsy_ordinary(int pid)
{
    struct file file;
    if (file_of(pid, &file))
        *place_of(&the_loop, &file) = file;
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

/* The process has a report: its further threads, and its end by a signal, are of interest as an end only. */
EXPORT void necropsy_told(int pid)
{
    ref process = process_of(&the_loop.table, pid);
    if (process)
        the_loop.table.processes[process].told = 1;
}

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

/* The last handled fault of each thread of a process; how many were written. */
EXPORT int necropsy_chances(int pid, struct chance *to, int most)
{
    const struct table *all = &the_loop.table;
    ref process = process_of(all, pid);
    int count = 0;
    for (ref at = process ? all->processes[process].first : 0; at && count < most; at = all->threads[at].next)
        if (all->threads[at].chance)
            copy_bytes(&to[count++], &all->chances[all->threads[at].chance], sizeof *to);
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
