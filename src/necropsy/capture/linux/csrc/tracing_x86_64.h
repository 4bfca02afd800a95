/* A stopped thread on x86-64: its registers, and calls that are made again. Included by ptrace.h. */
#ifndef NECROPSY_TRACING_X86_64_H
#define NECROPSY_TRACING_X86_64_H

/* What becomes of a call that returns EINTR is for the loop to decide, see restart_call and pass_on in signals.c. */
enum { CALLER_RESTARTS = 0 };

enum { PTRACE_PEEKUSER = 3, PTRACE_POKEUSER = 6, PTRACE_GETREGS = 12 };
enum { AT_RAX = 80, AT_ORIG_RAX = 120, AT_CS = 136, AT_FS_BASE = 168 }; /* offsets in struct user */
enum { USER_64 = 0x33, ERESTARTNOHAND = 514 };

static inline uint64_t peek(int tid, unsigned long offset)
{
    uint64_t word = 0;
    trace(PTRACE_PEEKUSER, tid, offset, (unsigned long)&word);
    return word;
}

/* 0; negative, and all of them 0, where they cannot be read. */
static inline long read_registers(int tid, uint64_t *registers)
{
    clear_bytes(registers, REGISTERS_SIZE);
    return trace(PTRACE_GETREGS, tid, 0, (unsigned long)registers);
}

/* The thread runs code of 64 bits. */
static inline int is_of_64_bits(const uint64_t *registers)
{
    return registers[AT_CS / 8] == USER_64;
}

static inline uint64_t thread_pointer(int tid)
{
    return peek(tid, AT_FS_BASE);
}

/* The thread is in this system call. */
static inline int is_in_call(int tid, uint64_t number)
{
    return peek(tid, AT_ORIG_RAX) == number;
}

/* It is about to return EINTR from a system call. `counter`: see tracing_aarch64.h. */
static inline int was_interrupted(int tid, uint64_t *counter)
{
    *counter = 0;
    return peek(tid, AT_RAX) == (uint64_t)-EINTR && (int64_t)peek(tid, AT_ORIG_RAX) >= 0;
}

/* A call that returns EINTR, was made by 64-bit code, and may be made again, is: the table of call_results.py. */
static inline void make_call_again(int tid)
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

/* waitid(2) by `wait_unless` of waking.c. */
#define WAIT_UNLESS                \
    "wait_unless:\n"               \
    "    mov %rdi, %r9\n"          \
    "    mov %rdx, %r10\n"         \
    "    mov %rsi, %rdx\n"         \
    "    xor %edi, %edi\n"         \
    "    xor %esi, %esi\n"         \
    "    xor %r8d, %r8d\n"         \
    "wait_begin:\n"                \
    "    cmpl $0, (%r9)\n"         \
    "    mov $247, %eax\n"         \
    "    jne wait_skip\n"          \
    "    syscall\n"                \
    "wait_end:\n"                  \
    "    ret\n"                    \
    "wait_skip:\n"                 \
    "    mov $-4, %rax\n"          \
    "    ret\n"

#define RETURN_FROM_SIGNAL         \
    "return_from_signal:\n"        \
    "    mov $15, %eax\n"          \
    "    syscall\n"

#endif
