/* The kernel of Linux on AArch64: numbers (include/uapi/asm-generic/unistd.h), how it is entered, and where it keeps
 * registers. */
#ifndef NECROPSY_KERNEL_AARCH64_H
#define NECROPSY_KERNEL_AARCH64_H

#include <stddef.h>
#include <stdint.h>

enum {
    SYS_fcntl = 25,
    SYS_ioctl = 29,
    SYS_openat = 56,
    SYS_close = 57,
    SYS_read = 63,
    SYS_write = 64,
    SYS_writev = 66,
    SYS_ppoll = 73,
    SYS_readlinkat = 78,
    SYS_newfstatat = 79,
    SYS_exit = 93,
    SYS_exit_group = 94,
    SYS_waitid = 95,
    SYS_timer_create = 107,
    SYS_timer_settime = 110,
    SYS_clock_gettime = 113,
    SYS_clock_nanosleep = 115,
    SYS_ptrace = 117,
    SYS_sched_yield = 124,
    SYS_tgkill = 131,
    SYS_rt_sigaction = 134,
    SYS_rt_sigprocmask = 135,
    SYS_rt_sigtimedwait = 137,
    SYS_rt_sigreturn = 139,
    SYS_prctl = 167,
    SYS_getpid = 172,
    SYS_gettid = 178,
    SYS_execve = 221,
    SYS_mmap = 222,
    SYS_mprotect = 226,
    SYS_wait4 = 260,
    SYS_prlimit64 = 261,
    SYS_process_vm_readv = 270,
    SYS_bpf = 280
};

/* Offsets of the program counter in ucontext_t, and of what is kept of a thread's registers: struct user_pt_regs, the
 * thread pointer, and the number of the system call (`live` in processors.py). */
enum { COUNTER_IN_CONTEXT = 440, COUNTER_AT = 256, STACK_AT = 248, REGISTERS_SIZE = 288 };

static inline long enter_kernel(long number, long a, long b, long c, long d, long e, long f)
{
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory", "cc");
    return x0;
}

/* Of any alignment, which ordinary memory does not mind. */
typedef uint64_t __attribute__((may_alias, aligned(1))) piece_of_memory;

static inline void copy_bytes(void *to, const void *from, size_t size)
{
    char *target = to;
    const char *source = from;
    for (; size >= sizeof(piece_of_memory); size -= sizeof(piece_of_memory)) {
        *(piece_of_memory *)target = *(const piece_of_memory *)source;
        target += sizeof(piece_of_memory);
        source += sizeof(piece_of_memory);
    }
    while (size--)
        *target++ = *source++;
}

static inline void clear_bytes(void *to, size_t size)
{
    char *target = to;
    for (; size >= sizeof(piece_of_memory); size -= sizeof(piece_of_memory)) {
        *(piece_of_memory *)target = 0;
        target += sizeof(piece_of_memory);
    }
    while (size--)
        *target++ = 0;
}

/* The compiler calls these for variables that are too large for its own code, with a C library or without. */
__attribute__((weak, used, visibility("hidden"))) void *memcpy(void *to, const void *from, size_t size)
{
    copy_bytes(to, from, size);
    return to;
}

__attribute__((weak, used, visibility("hidden"))) void *memset(void *to, int byte, size_t size)
{
    for (char *at = to; size--;)
        *at++ = (char)byte;
    return to;
}

#endif
