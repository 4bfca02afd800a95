/* Blocking in waitid(2) takes one system call for each stop. It knows no time limit, and a signal that arrives between
 * the look at `woken` and the call would not end it. So the handler looks where the thread is: before the call has begun,
 * it goes to the end of `wait_unless` instead.
 */
#include "waking.h"
#include "ptrace.h"
#include "signals.h"

enum { SIG_UNBLOCK = 1, SIG_SETMASK = 2, MONOTONIC = 1, TIMER_ABSTIME = 1, SIGEV_THREAD_ID = 4 };
enum { SA_SIGINFO = 4, SA_RESTORER = 0x04000000 };

struct action { /* the kernel's struct sigaction */
    void (*handler)(int, void *, void *);
    unsigned long flags;
    void (*restorer)(void);
    uint64_t mask;
};

struct timer_event { /* struct sigevent */
    uint64_t value;
    int32_t signo, notify, tid, unused[11];
};

/* waitid(P_ALL, 0, info, options, NULL), or -EINTR where `*woken` is set. */
long wait_unless(volatile int32_t *woken, int32_t *info, long options) __attribute__((visibility("hidden")));
extern const char wait_begin[] __attribute__((visibility("hidden")));
extern const char wait_end[] __attribute__((visibility("hidden")));
extern const char wait_skip[] __attribute__((visibility("hidden")));
void return_from_signal(void) __attribute__((visibility("hidden")));

__asm__(".text\n"
        ".globl wait_unless, wait_begin, wait_end, wait_skip, return_from_signal\n"
        ".hidden wait_unless, wait_begin, wait_end, wait_skip, return_from_signal\n"
        ".type wait_unless, %function\n" WAIT_UNLESS
        ".type return_from_signal, %function\n" RETURN_FROM_SIGNAL);

static void on_wake(int signo, void *info, void *context)
{
    uint64_t *at = (uint64_t *)((char *)context + COUNTER_IN_CONTEXT);
    (void)signo, (void)info;
    the_loop.woken = 1;
    if (*at >= (uint64_t)wait_begin && *at < (uint64_t)wait_end)
        *at = (uint64_t)wait_skip;
}

void open_waking(struct loop *all)
{
    struct action action = {on_wake, SA_SIGINFO | SA_RESTORER, return_from_signal, ~0UL};
    struct timer_event event = {0};
    event.signo = SIGUSR1;
    event.notify = SIGEV_THREAD_ID;
    event.tid = (int32_t)call1(SYS_gettid, 0);
    all->can_wake = call3(SYS_timer_create, MONOTONIC, (long)&event, (long)&all->timer) == 0
                    && call4(SYS_rt_sigaction, SIGUSR1, (long)&action, 0, 8) == 0;
}

static void set_timer(const struct loop *all, uint64_t until)
{
    struct timespec times[2] = {{0, 0}, {(int64_t)(until / 1000000000UL), (int64_t)(until % 1000000000UL)}};
    call4(SYS_timer_settime, all->timer, TIMER_ABSTIME, (long)times, 0);
}

void allow_waking(struct loop *all, uint64_t until)
{
    uint64_t wakes = BIT(SIGUSR1);
    if (all->may_wake)
        return;
    all->may_wake = 1;
    set_timer(all, until);
    call4(SYS_rt_sigprocmask, SIG_UNBLOCK, (long)&wakes, (long)&all->blocked, 8);
}

void forbid_waking(struct loop *all)
{
    if (!all->may_wake)
        return;
    all->may_wake = 0;
    call4(SYS_rt_sigprocmask, SIG_SETMASK, (long)&all->blocked, 0, 8);
    set_timer(all, 0);
}

long wait_or_wake(struct loop *all, int32_t *info)
{
    info[4] = 0;
    calls_made++;
    return wait_unless(&all->woken, info, WEXITED | WSTOPPED | WNOWAIT | WALL);
}
