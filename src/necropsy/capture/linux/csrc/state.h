/* All that the loop knows, and what it writes down and returns. */
#ifndef NECROPSY_STATE_H
#define NECROPSY_STATE_H

#include "table.h"

enum { JOURNAL = 4096, EARLY = 1 << 16, ENDED_EARLY = 64, HOLDS = 1 << 12 };
enum { TEXT = 1 << 20, MOST_TEXT = 8192, FILES = 1024, ENVIRONMENT = 1 << 16 };
/* The kernel scans all traced threads in each wait. From this number on, one more system call is cheaper than the scan. */
enum { CROWD = 256 };

#define MILLISECOND 1000000UL         /* ns */
#define EARLY_WAIT (20 * MILLISECOND) /* for the event of the creator */
#define LOOK (50 * MILLISECOND)       /* how often processes that are being stopped are looked at */

/* What `necropsy_next` returns; the numbers are repeated in event_loop.py. */
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
    INTERRUPTED, /* stopped at a signal that it ignores, or by us (0), which has interrupted a call: tid, value = signal */
    REQUESTED, /* stopped at a signal that asks it to end, and that it did not send itself: tid, value = signal */
    NOTICED, /* stopped at a breakpoint that the caller set: tid */
    THREADED, /* where stacks are measured: a fork, stopped where it has created its first thread: tid */
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
    uint32_t stack, stack_limit; /* KiB; 0 unless the main thread's stack grew close to its limit */
    uint32_t text, path_length, words_length;
    uint64_t at; /* ns of the monotonic clock */
    uint64_t base; /* of FINISHED: see `struct thread` */
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
    int32_t root, front, always, failures, root_ended, members;
    uint32_t run;
    uint64_t requests; /* a bit for each signal at which a process is returned as REQUESTED */
    ref leaving; /* a process that has ended, kept until the caller has seen what is known of it */
    uint64_t *beats;
    struct delivery *deliveries;
    const uint32_t *timed_out;
    struct {
        int32_t tid, status;
        uint64_t at;
        int32_t listed; /* its start and its end have been recorded */
    } gone[ENDED_EARLY]; /* threads that ended before the event of their creator arrived */
    int32_t gone_next;
    uint64_t last_birth, begins_at; /* ns of the monotonic clock */
    int32_t newborn; /* a new thread whose creator has a head start until `begins_at`; 0 for none */
    int32_t dying; /* a process whose threads are held until it has ended, or until `dying_until`; 0 for none */
    uint64_t dying_until;
    int32_t creator, created; /* who created last, and whom */
    int32_t next; /* whose stop is likely to come next: the kernel goes through all of them */
    /* In a crowd SIGCHLD says who has stopped. One that is pending swallows the next: then all are gone through (owed),
     * but so rarely that most of the time is left for something better. */
    int32_t owed;
    volatile int32_t woken; /* set by a signal handler too (waking.c) */
    int32_t can_wake, may_wake, timer;
    uint64_t blocked; /* signals, before one of them was allowed to wake */
    uint64_t scan_after, sweep_after, late_after; /* ns of the monotonic clock */
    int32_t *sweep; /* a ring: threads that were asked to stop */
    uint32_t sweep_first, sweep_last;
};

extern struct loop the_loop; /* one for each process: a tracer traces one command */

/* Something is to be returned: always 1. */
static inline int report(struct event *out, int kind, int tid, int pid, int value)
{
    out->kind = kind;
    out->tid = tid;
    out->pid = pid;
    out->value = value;
    return 1;
}

#endif
