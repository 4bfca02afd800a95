/* System calls without a C library, for Linux x86-64.
 *
 * The library that includes this is loaded by ctypes into any Python, beside glibc or musl, of any version: it must
 * not depend on either. Numbers and structures are the kernel's own (include/uapi, arch/x86/entry/syscalls).
 */
#ifndef NECROPSY_KERNEL_H
#define NECROPSY_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

enum {
    SYS_read = 0,
    SYS_write = 1,
    SYS_close = 3,
    SYS_poll = 7,
    SYS_mmap = 9,
    SYS_munmap = 11,
    SYS_ioctl = 16,
    SYS_pread64 = 17,
    SYS_getpid = 39,
    SYS_wait4 = 61,
    SYS_kill = 62,
    SYS_fcntl = 72,
    SYS_ptrace = 101,
    SYS_rt_sigtimedwait = 128,
    SYS_prctl = 157,
    SYS_clock_gettime = 228,
    SYS_clock_nanosleep = 230,
    SYS_tgkill = 234,
    SYS_waitid = 247,
    SYS_openat = 257,
    SYS_newfstatat = 262,
    SYS_readlinkat = 267,
    SYS_prlimit64 = 302,
    SYS_process_vm_readv = 310,
    SYS_bpf = 321
};

enum { EPERM = 1, ESRCH = 3, EINTR = 4, ECHILD = 10, EAGAIN = 11 };

struct timespec {
    int64_t seconds, nanoseconds;
};

/* One for the whole library or program that includes this. */
#define SHARED __attribute__((weak, visibility("hidden")))

/* How many system calls were made: tests count them. */
SHARED uint64_t calls_made;
/* clock_gettime(2) of the C library, which most kernels answer without a system call; NULL where it was not given. */
SHARED int (*clock_function)(int, struct timespec *);

/* The result, or -errno. */
static inline long call6(long number, long a, long b, long c, long d, long e, long f)
{
    long result;
    calls_made++;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

static inline long call5(long number, long a, long b, long c, long d, long e)
{
    return call6(number, a, b, c, d, e, 0);
}

static inline long call4(long number, long a, long b, long c, long d)
{
    return call6(number, a, b, c, d, 0, 0);
}

static inline long call3(long number, long a, long b, long c)
{
    return call6(number, a, b, c, 0, 0, 0);
}

static inline long call1(long number, long a)
{
    return call6(number, a, 0, 0, 0, 0, 0);
}

static inline void copy_bytes(void *to, const void *from, size_t size)
{
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(size) : : "memory");
}

static inline void clear_bytes(void *to, size_t size)
{
    __asm__ volatile("rep stosb" : "+D"(to), "+c"(size) : "a"(0) : "memory");
}

/* Anonymous memory, zeroed and taken from the system page by page as it is touched; NULL where there is none. */
static inline void *reserve(size_t size)
{
    long at = call6(SYS_mmap, 0, (long)size, 3, 0x4022, -1, 0); /* READ|WRITE, PRIVATE|ANONYMOUS|NORESERVE */
    return at < 0 && at > -4096 ? NULL : (void *)at;
}

/* ns of the monotonic clock. */
static inline uint64_t now(void)
{
    struct timespec time = {0, 0};
    if (!clock_function || clock_function(1, &time))
        call3(SYS_clock_gettime, 1, (long)&time, 0);
    return (uint64_t)time.seconds * 1000000000UL + (uint64_t)time.nanoseconds;
}

#endif
