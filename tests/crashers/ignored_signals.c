// What calls return that a signal reaches: every call with every signal, all at once, a line for each.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// On a full machine it takes a while until 88 callers sleep and are disturbed.
enum { LIMIT_S = 2 };

static const struct timespec limit = {LIMIT_S, 0};

static long socket_with_limit(int option, int ends[2]) {
    struct timeval value = {LIMIT_S, 0};
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    return setsockopt(ends[0], SOL_SOCKET, option, &value, sizeof value);
}

static long call_epoll_wait(void) {
    struct epoll_event event;
    return epoll_wait(epoll_create1(0), &event, 1, LIMIT_S * 1000);
}

static long call_epoll_pwait(void) {
    struct epoll_event event;
    sigset_t mask;
    sigemptyset(&mask);
    return epoll_pwait(epoll_create1(0), &event, 1, LIMIT_S * 1000, &mask);
}

static long call_epoll_pwait2(void) {
    struct epoll_event event;
    return syscall(441, epoll_create1(0), &event, 1, &limit, 0, 0);
}

static long call_semtimedop(void) {
    int set = semget(IPC_PRIVATE, 1, 0600);
    struct sembuf operation = {0, -1, 0};
    long result = semtimedop(set, &operation, 1, &limit);
    int number = errno;
    semctl(set, 0, IPC_RMID);
    errno = number;
    return result;
}

static long call_recv(void) {
    int ends[2];
    char byte;
    socket_with_limit(SO_RCVTIMEO, ends);
    return recv(ends[0], &byte, 1, 0);
}

static long call_read(void) {
    int ends[2];
    char byte;
    socket_with_limit(SO_RCVTIMEO, ends);
    return read(ends[0], &byte, 1);
}

static long call_send(void) {
    int ends[2];
    static char bytes[1 << 16];
    socket_with_limit(SO_SNDTIMEO, ends);
    while (send(ends[0], bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
    }
    return send(ends[0], bytes, 1, 0);
}

static long call_sigtimedwait(void) {
    sigset_t awaited;
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGUSR2);
    sigprocmask(SIG_BLOCK, &awaited, 0);
    return sigtimedwait(&awaited, 0, &limit);
}

static long call_io_getevents(void) {
    aio_context_t context = 0;
    struct io_event event;
    struct timespec most = limit;
    if (syscall(SYS_io_setup, 1, &context)) return -1;
    return syscall(SYS_io_getevents, context, 1, 1, &event, &most);
}

static long call_poll(void) {  // one that is restarted anyway
    return ppoll(0, 0, &limit, 0);
}

static long call_nanosleep(void) { return nanosleep(&limit, 0); }

static const struct {
    const char *name;
    long (*make)(void);
} calls[] = {
    {"epoll_wait", call_epoll_wait},   {"epoll_pwait", call_epoll_pwait}, {"epoll_pwait2", call_epoll_pwait2},
    {"semtimedop", call_semtimedop},   {"recv", call_recv},               {"read", call_read},
    {"send", call_send},               {"sigtimedwait", call_sigtimedwait}, {"io_getevents", call_io_getevents},
    {"ppoll", call_poll},              {"nanosleep", call_nanosleep},
};

static const char *const ways[] = {"WINCH", "CHLD", "CONT", "ignored", "handled", "both", "stopped", "flood"};

static void handle(int number) { (void)number; }

static void pause_ms(long ms) {
    struct timespec most = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&most, 0);
}

static char state_of(pid_t pid) {
    char path[32], text[256];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int file = open(path, O_RDONLY);
    ssize_t size = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (file >= 0) close(file);
    if (size <= 0) return 'X';
    text[size] = 0;
    return strrchr(text, ')')[2];
}

static void disturb(pid_t caller, const char *way) {
    for (int asleep = 0; asleep < 3 && getppid() == caller; asleep = state_of(caller) == 'S' ? asleep + 1 : 0) pause_ms(10);
    if (!strcmp(way, "WINCH")) kill(caller, SIGWINCH);
    if (!strcmp(way, "CONT")) kill(caller, SIGCONT);
    if (!strcmp(way, "ignored")) kill(caller, SIGUSR1);
    if (!strcmp(way, "handled")) kill(caller, SIGHUP);
    if (!strcmp(way, "both")) {
        kill(caller, SIGWINCH);
        kill(caller, SIGHUP);
    }
    if (!strcmp(way, "stopped")) {
        kill(caller, SIGSTOP);
        while (getppid() == caller && state_of(caller) != 'T' && state_of(caller) != 't') pause_ms(5);
        pause_ms(150); // a tracer on a full machine needs some time for so many stops at once
        kill(caller, SIGCONT);
    }
    while (!strcmp(way, "flood") && getppid() == caller) {
        kill(caller, SIGWINCH);
        pause_ms(60);
    }
    _exit(0);  // SIGCHLD
}

static void one(const char *name, long (*make)(void), const char *way) {
    signal(SIGUSR1, SIG_IGN);
    struct sigaction action = {.sa_handler = handle};
    sigaction(SIGHUP, &action, 0);
    pid_t caller = getpid();
    pid_t child = fork();
    if (child == 0) disturb(caller, way);
    errno = 0;
    long result = make();
    printf("%s %s %ld %s\n", name, way, result, result < 0 ? strerrorname_np(errno) : "");
    fflush(stdout);
    _exit(0);
}

int main(void) {
    for (unsigned call = 0; call < sizeof calls / sizeof *calls; call++)
        for (unsigned way = 0; way < sizeof ways / sizeof *ways; way++)
            if (fork() == 0) one(calls[call].name, calls[call].make, ways[way]);
    while (wait(0) > 0) {
    }
    return 0;
}
