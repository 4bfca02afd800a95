/* The kernel of Linux on x86-64: numbers (arch/x86/entry/syscalls), how it is entered, and where it keeps registers. */
#ifndef NECROPSY_KERNEL_X86_64_H
#define NECROPSY_KERNEL_X86_64_H

#include <stddef.h>
#include <stdint.h>

enum {
    SYS_read = 0,
    SYS_write = 1,
    SYS_close = 3,
    SYS_mmap = 9,
    SYS_mprotect = 10,
    SYS_rt_sigaction = 13,
    SYS_rt_sigprocmask = 14,
    SYS_rt_sigreturn = 15,
    SYS_ioctl = 16,
    SYS_writev = 20,
    SYS_sched_yield = 24,
    SYS_getpid = 39,
    SYS_execve = 59,
    SYS_exit = 60,
    SYS_wait4 = 61,
    SYS_fcntl = 72,
    SYS_ptrace = 101,
    SYS_rt_sigtimedwait = 128,
    SYS_prctl = 157,
    SYS_gettid = 186,
    SYS_timer_create = 222,
    SYS_timer_settime = 223,
    SYS_clock_gettime = 228,
    SYS_clock_nanosleep = 230,
    SYS_exit_group = 231,
    SYS_tgkill = 234,
    SYS_waitid = 247,
    SYS_openat = 257,
    SYS_newfstatat = 262,
    SYS_readlinkat = 267,
    SYS_ppoll = 271,
    SYS_prlimit64 = 302,
    SYS_process_vm_readv = 310,
    SYS_bpf = 321
};

/* Offsets of the program counter in ucontext_t, and of what is kept of a thread's registers (struct user_regs_struct). */
enum { COUNTER_IN_CONTEXT = 168, COUNTER_AT = 128, STACK_AT = 152, REGISTERS_SIZE = 216 };

static inline long enter_kernel(long number, long a, long b, long c, long d, long e, long f)
{
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

static inline void copy_bytes(void *to, const void *from, size_t size)
{
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(size) : : "memory");
}

static inline void clear_bytes(void *to, size_t size)
{
    __asm__ volatile("rep stosb" : "+D"(to), "+c"(size) : "a"(0) : "memory");
}

#endif
