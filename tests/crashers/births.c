// How processes come into being and end, and what is seen of it: a line for each way.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static pid_t clone_with(unsigned long flags) { return (pid_t)syscall(SYS_clone, flags, 0, 0, 0, 0); }

static void pause_ms(long ms) {
    struct timespec most = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&most, 0);
}

static const char *ended(int status) {
    static char text[64];
    if (WIFEXITED(status)) sprintf(text, "exited %d", WEXITSTATUS(status));
    if (WIFSIGNALED(status)) sprintf(text, "signal %d", WTERMSIG(status));
    if (WIFSTOPPED(status)) sprintf(text, "stopped %d", WSTOPSIG(status));
    if (WIFCONTINUED(status)) sprintf(text, "continued");
    return text;
}

static const char *wait_for(pid_t child, int flags) {
    int status = 0;
    pid_t found = waitpid(child, &status, flags);
    return found < 0 ? strerrorname_np(errno) : ended(status);
}

static int *volatile nowhere;

static void crash(void) {
    *nowhere = 1;
    _exit(99);
}

static void with_parent_of_ours(void) {
    int ends[2], same = -1;
    if (pipe(ends)) return;
    pid_t parent = getppid();
    pid_t child = clone_with(CLONE_PARENT | SIGCHLD);
    if (child == 0) {
        same = getppid() == parent;
        _exit(write(ends[1], &same, sizeof same) != sizeof same);
    }
    close(ends[1]);
    long size = read(ends[0], &same, sizeof same);
    printf("clone, parent: same parent %d of %ld, %s\n", same, size, wait_for(child, 0));
}

static void crashing_with_parent_of_ours(void) {
    pid_t child = clone_with(CLONE_PARENT | SIGCHLD);
    if (child == 0) crash();
    pause_ms(100);
    printf("clone, parent, crash: %s\n", wait_for(child, 0));
}

static void untraced(void) {
    pid_t child = clone_with(CLONE_UNTRACED | SIGCHLD);
    if (child == 0) _exit(4);
    printf("clone, untraced: %s", wait_for(child, 0));
    child = clone_with(CLONE_UNTRACED | SIGCHLD);
    if (child == 0) {
        pid_t grandchild = fork();
        if (grandchild == 0) crash();
        int status;
        waitpid(grandchild, &status, 0);
        raise(WTERMSIG(status));
    }
    printf(", %s\n", wait_for(child, 0));
}

static void without_exit_signal(void) {
    pid_t child = clone_with(0);
    if (child == 0) _exit(5);
    printf("clone, no signal: %s, ", wait_for(child, 0));
    printf("%s\n", wait_for(child, __WCLONE));
}

static volatile sig_atomic_t taken, by, code, value;

static void take(int number, siginfo_t *info, void *context) {
    (void)context;
    taken = number;
    by = info->si_pid;
    code = info->si_code;
    value = info->si_status;
}

static void with_exit_signal(void) {
    struct sigaction action = {.sa_sigaction = take, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGUSR1, &action, 0);
    pid_t child = clone_with(SIGUSR1);
    if (child == 0) _exit(6);
    printf("clone, own signal: %s, ", wait_for(child, __WALL));
    printf("taken %d of child %d, code %d, status %d\n", taken, by == child, code, value);
}

static void child_signals(void) {
    struct sigaction action = {.sa_sigaction = take, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGCHLD, &action, 0);
    pid_t child = fork();
    if (child == 0) {
        raise(SIGSTOP);
        pause_ms(200);
        crash();
    }
    printf("SIGCHLD: %s, ", wait_for(child, WUNTRACED));
    printf("code %d, status %d; ", code, value);
    kill(child, SIGCONT);
    printf("%s, ", wait_for(child, WCONTINUED));
    printf("%s, ", wait_for(child, 0));
    printf("of child %d, code %d, status %d\n", by == child, code, value);
}

static void ignored_children(void) {
    signal(SIGCHLD, SIG_IGN);
    pid_t child = fork();
    if (child == 0) _exit(3);
    printf("ignored: %s\n", wait_for(child, 0));
}

static void vforked(void) {
    volatile int shared = 0;
    pid_t child = vfork();
    if (child == 0) {
        shared = 7;
        _exit(8);
    }
    printf("vfork: %s, shared %d", wait_for(child, 0), shared);
    child = vfork();
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", "exit 9", (char *)0);
        _exit(1);
    }
    printf(", exec %s", wait_for(child, 0));
    child = vfork();
    if (child == 0) crash();
    printf(", crash %s\n", wait_for(child, 0));
}

static void spawned(void) {
    char *words[] = {"sh", "-c", "kill -SEGV $$", 0};
    pid_t child = 0;
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    int failed = posix_spawn(&child, "/bin/sh", 0, &attributes, words, environ);
    printf("posix_spawn: %d, own group %d, ", failed, getpgid(child) == child);
    printf("%s, ", wait_for(child, 0));
    printf("missing: %s\n", strerrorname_np(posix_spawn(&child, "/nowhere/sh", 0, 0, words, environ)));
}

static void orphan(int subreaper) {
    int ends[2];
    char name[64] = "";
    if (pipe(ends)) return;
    if (subreaper) prctl(PR_SET_CHILD_SUBREAPER, 1);
    pid_t ours = getpid(), middle = fork();
    if (middle == 0) {
        pid_t before = getpid();
        if (fork() == 0) {
            while (getppid() == before) pause_ms(5);
            char path[64], text[64] = "ours\n";
            sprintf(path, "/proc/%d/comm", getppid());
            int file = open(path, O_RDONLY);
            if (getppid() != ours && read(file, text, sizeof text - 1) < 0) strcpy(text, "unknown\n");
            _exit(write(ends[1], text, strlen(text)) < 0 ? 1 : 11);
        }
        _exit(10);
    }
    close(ends[1]);
    const char *how = wait_for(middle, 0);
    printf("orphan, subreaper %d: %s, ", subreaper, how);
    if (read(ends[0], name, sizeof name - 1) <= 0) strcpy(name, "nothing\n");
    name[strcspn(name, "\n")] = 0;
    printf("parent is %s, ", name);
    printf("%s\n", wait_for(-1, 0));
}

static void child_of_the_dead(void) {
    int ends[2];
    char byte = 0;
    if (pipe(ends)) return;
    pid_t middle = fork();
    if (middle == 0) {
        if (fork() == 0) {
            sigset_t awaited;
            sigemptyset(&awaited);
            sigaddset(&awaited, SIGUSR2);
            sigprocmask(SIG_BLOCK, &awaited, 0);
            prctl(PR_SET_PDEATHSIG, SIGUSR2);
            byte = 'r';
            (void)!write(ends[1], &byte, 1);
            int number = 0;
            sigwait(&awaited, &number);
            byte = number == SIGUSR2 ? 's' : '?';
            _exit(write(ends[1], &byte, 1) != 1);
        }
        (void)!read(ends[0], &byte, 1);
        crash();
    }
    printf("parent's death: %s, ", wait_for(middle, 0));
    printf("%ld ", read(ends[0], &byte, 1));
    printf("%c\n", byte);
}

static void stopped_orphans(void) {
    int ends[2];
    char byte = '-';
    if (pipe(ends)) return;
    pid_t middle = fork();
    if (middle == 0) {
        setsid();
        pid_t stopped = fork();
        if (stopped == 0) {
            setpgid(0, 0);
            raise(SIGSTOP);
            pause_ms(500);  // SIGHUP comes with SIGCONT
            (void)!write(ends[1], "alive", 5);
            _exit(0);
        }
        wait_for(stopped, WUNTRACED);
        _exit(12);
    }
    close(ends[1]);
    printf("stopped orphan: %s, ", wait_for(middle, 0));
    printf("%ld bytes\n", read(ends[0], &byte, 1));
}

static void plain_orphan(void) { orphan(0); }
static void reaped_orphan(void) { orphan(1); }

int main(int count, char **words) {
    if (count > 1) {  // a child that outlives the command
        if (fork() == 0) {
            setsid();
            pause_ms(400);
            int file = open(words[1], O_CREAT | O_WRONLY, 0600);
            _exit(write(file, "alive", 5) != 5);
        }
        return 13;
    }
    void (*const ways[])(void) = {
        with_parent_of_ours, crashing_with_parent_of_ours, untraced, without_exit_signal, with_exit_signal, child_signals,
        ignored_children, vforked, spawned, plain_orphan, reaped_orphan, child_of_the_dead, stopped_orphans,
    };
    for (unsigned way = 0; way < sizeof ways / sizeof *ways; way++) {
        if (fork() == 0) {
            ways[way]();
            fflush(stdout);
            _exit(0);
        }
        int status;
        while (wait(&status) > 0) {
        }
    }
    return 0;
}
