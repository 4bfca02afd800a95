/* Which thread is of which process: what the loop knows of everybody that it traces. Memory grows as it is used. */
#ifndef NECROPSY_TABLE_H
#define NECROPSY_TABLE_H

#include "kernel.h"

enum { MOST_THREADS = 1 << 20, MOST_PROCESSES = 1 << 19, MOST_SIGNALS = 1 << 13, MOST_CHANCES = 1 << 14 };
enum { BUCKETS = 1 << 16, SIGINFO_SIZE = 128 };

/* Indices into the pools below; 0 is nobody. */
typedef int32_t ref;

struct thread {
    int32_t tid, status; /* status: event << 8 | signal of the stop that it is held in */
    ref process, next, before, same_bucket, chance;
    uint64_t base; /* thread pointer in its first stop, where stacks are measured: its control block. 0 where it was not read */
    uint64_t again; /* where the caller may have set it back to, to make a call again (CALLER_RESTARTS); 0: nowhere */
    uint8_t held, exiting, queued, rested;
    uint8_t unannounced; /* it was recorded before the event of its creator arrived */
};

struct process {
    int32_t pid, threads, running; /* running: threads that are neither held nor past their EVENT_EXIT */
    ref first, same_bucket, signals;
    uint32_t peak_rss, peak_size; /* KiB; 0 where they were not read */
    uint32_t stack, stack_limit; /* KiB, of the main thread; 0 unless it grew close to the limit */
    uint64_t held_since, last_held; /* ns of the monotonic clock */
    uint64_t quiet_until;           /* the same: until then it is not returned as REQUESTED */
    uint32_t faults, repeats; /* handled ones, as far as they were looked up; those with the same registers as before */
    uint8_t holding, told, killed, measured, executed, threaded;
};

/* The last siginfo of each signal that a process got. */
struct signal {
    int32_t number;
    ref next;
    uint8_t info[SIGINFO_SIZE];
};

/* A fault of a thread that a handler took, and whose handler may still be running; `next` is the one before it. */
struct chance {
    int32_t tid;
    ref next;
    uint64_t at; /* ns of the monotonic clock */
    uint8_t info[SIGINFO_SIZE], registers[REGISTERS_SIZE];
};

struct table {
    struct thread *threads;
    struct process *processes;
    struct signal *signals;
    struct chance *chances;
    ref *thread_buckets, *process_buckets;
    ref free_thread, free_process, free_signal, free_chance;
    ref used_threads, used_processes, used_signals, used_chances;
    int32_t live; /* threads */
};

int table_open(struct table *);
ref thread_of(const struct table *, int tid);
ref process_of(const struct table *, int pid);
ref add_process(struct table *, int pid);
ref add_thread(struct table *, ref process, int tid);
void drop_thread(struct table *, ref thread);
void drop_process(struct table *, ref process);
struct signal *signal_of(struct table *, ref process, int number);
ref add_chance(struct table *, ref thread);
void drop_chance(struct table *, ref *from);

#endif
