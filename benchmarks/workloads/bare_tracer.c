/* The least that a ptrace supervisor can do, as a yardstick: it starts a command, follows its threads and children,
 * and lets every stop go on at once. Usage: bare_tracer COMMAND [ARG]... It ends as the command ends. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FAILED = 125 };

static void fail(const char *what) {
    perror(what);
    exit(FAILED);
}

static int stops_the_group(int number) {
    return number == SIGSTOP || number == SIGTSTP || number == SIGTTIN || number == SIGTTOU;
}

/* A stop is answered in one of three ways: a group-stop lasts (LISTEN), a signal is delivered, the rest goes on. */
static void answer(pid_t tid, int status) {
    int event = status >> 16, number = WSTOPSIG(status);
    if (event == PTRACE_EVENT_STOP && stops_the_group(number))
        ptrace(PTRACE_LISTEN, tid, 0, 0);
    else
        ptrace(PTRACE_CONT, tid, 0, event ? 0 : number); /* an ESRCH: it was killed meanwhile, and waitpid says so */
}

int main(int argc, char **argv) {
    int go[2], ended = 0, status;
    char byte;
    if (argc < 2 || pipe(go))
        fail("bare_tracer");
    pid_t command = fork();
    if (command < 0)
        fail("fork");
    if (!command) {
        close(go[1]);
        if (read(go[0], &byte, 1) != 1) /* the tracer has it, or has failed */
            _exit(FAILED);
        close(go[0]);
        execvp(argv[1], argv + 1);
        perror(argv[1]);
        _exit(127);
    }
    long options = PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC | PTRACE_O_TRACEEXIT;
    if (ptrace(PTRACE_SEIZE, command, 0, options))
        fail("PTRACE_SEIZE");
    if (write(go[1], "", 1) != 1)
        fail("write");
    close(go[0]);
    close(go[1]);
    for (;;) {
        pid_t tid = waitpid(-1, &status, __WALL);
        if (tid < 0 && errno != EINTR)
            break; /* ECHILD: the last one is gone */
        if (tid > 0 && WIFSTOPPED(status))
            answer(tid, status);
        else if (tid == command)
            ended = status;
    }
    if (WIFSIGNALED(ended)) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none); /* the command has written its own */
        signal(WTERMSIG(ended), SIG_DFL);
        raise(WTERMSIG(ended));
    }
    return WEXITSTATUS(ended);
}
