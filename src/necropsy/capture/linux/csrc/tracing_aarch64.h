/* A stopped thread on AArch64: its registers, and calls that are made again. Included by ptrace.h. */
#ifndef NECROPSY_TRACING_AARCH64_H
#define NECROPSY_TRACING_AARCH64_H

/* What becomes of a call that returns EINTR is for the caller to decide: it takes more than one look (call_results.py). */
enum { CALLER_RESTARTS = 1 };

enum { PTRACE_GETREGSET = 0x4204, NT_PRSTATUS = 1, NT_ARM_TLS = 0x401, NT_ARM_SYSTEM_CALL = 0x404, PRSTATUS_SIZE = 272 };
enum { IN_NO_CALL = -1, CALL_SIZE = 4 };

struct region { /* struct iovec */
    void *base;
    uint64_t size;
};

/* How many bytes were read of a set of registers; negative for none. */
static inline long read_set(int tid, int set, void *to, uint64_t size)
{
    struct region region = {to, size};
    long failed = trace(PTRACE_GETREGSET, tid, (unsigned long)set, (unsigned long)&region);
    return failed < 0 ? failed : (long)region.size;
}

static inline uint64_t thread_pointer(int tid)
{
    uint64_t pointer = 0;
    read_set(tid, NT_ARM_TLS, &pointer, sizeof pointer);
    return pointer;
}

static inline int32_t call_of(int tid)
{
    int32_t number = IN_NO_CALL;
    read_set(tid, NT_ARM_SYSTEM_CALL, &number, sizeof number);
    return number;
}

/* 0; negative, and all of them 0, where they cannot be read, or are those of a program of 32 bits. */
static inline long read_registers(int tid, uint64_t *registers)
{
    clear_bytes(registers, REGISTERS_SIZE);
    long got = read_set(tid, NT_PRSTATUS, registers, PRSTATUS_SIZE);
    if (got != PRSTATUS_SIZE) {
        clear_bytes(registers, REGISTERS_SIZE);
        return got < 0 ? got : -EPERM;
    }
    registers[PRSTATUS_SIZE / 8] = thread_pointer(tid);
    registers[PRSTATUS_SIZE / 8 + 1] = (uint32_t)call_of(tid);
    return 0;
}

/* The thread runs code of 64 bits: others' registers are not read at all. */
static inline int is_of_64_bits(const uint64_t *registers)
{
    return registers[STACK_AT / 8] != 0;
}

/* The thread is in this system call. */
static inline int is_in_call(int tid, uint64_t number)
{
    return call_of(tid) == (int32_t)number;
}

/* It is about to return EINTR from a system call: the first register is its result. `counter`: the program counter, set
 * back to that call. */
static inline int was_interrupted(int tid, uint64_t *counter)
{
    uint64_t registers[PRSTATUS_SIZE / 8] = {0};
    read_set(tid, NT_PRSTATUS, registers, sizeof registers);
    int interrupted = registers[0] == (uint64_t)-EINTR;
    *counter = registers[COUNTER_AT / 8] - (interrupted ? CALL_SIZE : 0);
    return interrupted;
}

/* See CALLER_RESTARTS. */
static inline void make_call_again(int tid)
{
    (void)tid;
}

/* waitid(2) by `wait_unless` of waking.c. */
#define WAIT_UNLESS                \
    "wait_unless:\n"               \
    "    mov x9, x0\n"             \
    "    mov x3, x2\n"             \
    "    mov x2, x1\n"             \
    "    mov x0, #0\n"             \
    "    mov x1, #0\n"             \
    "    mov x4, #0\n"             \
    "    mov x8, #95\n"            \
    "wait_begin:\n"                \
    "    ldr w10, [x9]\n"          \
    "    cbnz w10, wait_skip\n"    \
    "    svc #0\n"                 \
    "wait_end:\n"                  \
    "    ret\n"                    \
    "wait_skip:\n"                 \
    "    mov x0, #-4\n"            \
    "    ret\n"

#define RETURN_FROM_SIGNAL         \
    "return_from_signal:\n"        \
    "    mov x8, #139\n"           \
    "    svc #0\n"

#endif
