/* System calls without a C library, for Linux.
 *
 * The library that includes this is loaded by ctypes into any Python, beside glibc or musl, of any version: it must
 * not depend on either. Numbers and structures are the kernel's own (include/uapi). What differs from processor to
 * processor is in kernel_x86_64.h and kernel_aarch64.h: both define the same.
 */
#ifndef NECROPSY_KERNEL_H
#define NECROPSY_KERNEL_H

#ifdef __aarch64__
#include "kernel_aarch64.h"
#else
#include "kernel_x86_64.h"
#endif

#define EXPORT __attribute__((visibility("default")))

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
    calls_made++;
    return enter_kernel(number, a, b, c, d, e, f);
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
