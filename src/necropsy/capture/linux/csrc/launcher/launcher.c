/* The program `necropsy`: it records what Python's own start destroys, and executes `necropsy-python` beside it.
 *
 * CPython ignores SIGPIPE and SIGXFSZ before the first line of a script runs, turns Ctrl-C into an exception, and dies of
 * SIGSEGV where its stack is very small. So this program, which needs neither a C library nor memory of its own,
 *
 * - records whether SIGPIPE and SIGXFSZ are ignored;
 * - blocks SIGINT, unless it is blocked or ignored already: it takes effect in necropsy's first lines. SIGTERM and SIGHUP,
 *   which Python leaves alone, end the interpreter as they end any program, and stay as they are;
 * - raises a stack limit that is too small for Python, and records what it was. Where that is not allowed, it says so
 *   in one line and starts nothing.
 *
 * The record is one variable of the environment (its form is told in launcher.py, which removes it).
 */
#include "../kernel.h"

#define PYTHON_SCRIPT "necropsy-python" /* in hatch_build.py too */
#define VARIABLE "NECROPSY_LAUNCHER"    /* in launcher.py too */

enum { SIGINT = 2, SIGPIPE = 13, SIGXFSZ = 25 };
enum { ENOENT = 2, E2BIG = 7, ENOMEM = 12, EACCES = 13 };
enum { AT_EXECFN = 31, AT_CWD = -100, RLIMIT_STACK = 3, FAILED = 125, LINKS = 40, PATH = 4096 };

/* Python's start and a report took 74 KiB at most (CPython 3.10 to 3.13). */
#define NEEDED (84UL << 10)
/* Below this the limit is raised. A larger one stays as it is. */
#define PLENTY (256UL << 10)
/* What Linux systems have by default. */
#define USUAL (8UL << 20)

struct limit {
    uint64_t soft, hard;
};

struct action { /* the kernel's, not the C library's */
    uint64_t handler, flags, restorer, mask;
};

/* Static: the stack may be of one page. */
static char path[PATH + sizeof PYTHON_SCRIPT], link[PATH], record[160], message[2 * PATH];

static size_t length(const char *text)
{
    size_t size = 0;
    while (text[size]) size++;
    return size;
}

static char *append(char *at, const char *text)
{
    size_t size = length(text);
    copy_bytes(at, text, size);
    at[size] = 0;
    return at + size;
}

static char *append_number(char *at, uint64_t number)
{
    char digits[24], *first = digits + sizeof digits;
    *--first = 0;
    do *--first = (char)('0' + number % 10);
    while (number /= 10);
    return append(at, first);
}

__attribute__((noreturn)) static void give_up(const char *what, const char *of, const char *why)
{
    char *end = append(message, "necropsy: ");
    end = append(end, what);
    end = append(end, of);
    end = append(end, why);
    end = append(end, "\n");
    call3(SYS_write, 2, (long)message, end - message);
    for (;;) call1(SYS_exit_group, FAILED);
}

/* 1 where the signal is ignored, 0 where not, negative where the system does not tell. */
static int is_ignored(int number)
{
    struct action action = {0, 0, 0, 0};
    if (call4(SYS_rt_sigaction, number, 0, (long)&action, 8) < 0) return -1;
    return action.handler == 1;
}

/* Block SIGINT; 1 where it had been neither blocked nor ignored. */
static int block_interrupts(void)
{
    uint64_t wanted = 1UL << (SIGINT - 1), before = 0;
    if (is_ignored(SIGINT) || call4(SYS_rt_sigprocmask, 0, (long)&wanted, (long)&before, 8) < 0) return 0;
    return !(before & wanted);
}

static int set_stack(uint64_t soft, uint64_t hard)
{
    struct limit limit = {soft, hard};
    return call4(SYS_prlimit64, 0, RLIMIT_STACK, (long)&limit, 0) == 0;
}

/* Make room for Python beside `used` bytes of arguments and environment, which lie on the stack too. 1 where the limit
 * was changed; it had been `before`. */
static int raise_stack(uint64_t used, struct limit *before)
{
    if (call4(SYS_prlimit64, 0, RLIMIT_STACK, 0, (long)before) < 0 || before->soft >= PLENTY + used) return 0;
    uint64_t wanted = USUAL + used, hard = before->hard;
    if (hard < NEEDED + used && set_stack(wanted, wanted)) return 1; /* it takes CAP_SYS_RESOURCE */
    if (hard < NEEDED + used) {
        char need[24];
        append_number(need, (NEEDED + used + 1023) >> 10);
        give_up("the limit on the stack is too small for Python, so nothing was run; a hard limit of ", need,
                " KiB is enough (ulimit -s)");
    }
    return set_stack(hard < wanted ? hard : wanted, hard);
}

/* Follow the symbolic links at the end of `path`, for a system without /proc. */
static void follow_links(void)
{
    for (int count = 0; count < LINKS; count++) {
        long size = call4(SYS_readlinkat, AT_CWD, (long)path, (long)link, sizeof link - 1);
        if (size <= 0) return;
        link[size] = 0;
        size_t keep = length(path);
        while (keep && path[keep - 1] != '/') keep--;
        if (link[0] == '/') keep = 0;
        if (keep + (size_t)size >= PATH) return;
        append(path + keep, link);
    }
}

/* Into `path`: the script that lies beside this program, wherever the program was called from. */
static void find_script(const char *called_as)
{
    long size = call4(SYS_readlinkat, AT_CWD, (long)"/proc/self/exe", (long)path, PATH - 1);
    if (size > 0) {
        path[size] = 0;
    } else if (called_as && length(called_as) < PATH) {
        append(path, called_as);
        follow_links();
    }
    size_t keep = length(path);
    while (keep && path[keep - 1] != '/') keep--;
    append(path + keep, PYTHON_SCRIPT);
}

static int is_record(const char *entry)
{
    const char *name = VARIABLE "=";
    while (*name && *name == *entry) name++, entry++;
    return !*name;
}

/* VARIABLE=pid,ignored,blocked or VARIABLE=pid,ignored,blocked,soft,hard; 1 where there is something to tell. */
static int write_record(uint64_t used)
{
    int pipe = is_ignored(SIGPIPE), file_size = is_ignored(SIGXFSZ);
    if (pipe < 0 || file_size < 0) return 0;
    struct limit before = {0, 0};
    int raised = raise_stack(used, &before);
    char *end = append(record, VARIABLE "=");
    end = append_number(end, (uint64_t)call1(SYS_getpid, 0));
    end = append(end, ",");
    end = append_number(end, (uint64_t)pipe << (SIGPIPE - 1) | (uint64_t)file_size << (SIGXFSZ - 1));
    end = append(end, block_interrupts() ? ",1" : ",0");
    if (raised) {
        end = append_number(append(end, ","), before.soft);
        append_number(append(end, ","), before.hard);
    }
    return 1;
}

/* `stack` as the kernel leaves it at exec: argc, argv, NULL, the environment, NULL, the auxiliary vector. */
__attribute__((noreturn, used)) static void launch(long *stack)
{
    char **argv = (char **)(stack + 1), **environment = argv + stack[0] + 1, **end = environment, **kept = environment;
    const char *called_as = 0, *last = 0;
    for (; *end; end++) {
        last = *end;
        if (!is_record(*end)) *kept++ = *end;
    }
    for (uint64_t *entry = (uint64_t *)(end + 1); entry[0]; entry += 2)
        if (entry[0] == AT_EXECFN) last = called_as = (const char *)entry[1];
    find_script(called_as);
    /* The vector has been read: the record's place is there. */
    if (write_record(last ? (uint64_t)(last + length(last)) - (uint64_t)stack : 0)) *kept++ = record;
    *kept = 0;
    long error = -call3(SYS_execve, (long)path, (long)argv, (long)environment);
    give_up("cannot start ", path,
            error == ENOENT   ? ": it or its Python is not there; install necropsy again"
            : error == EACCES ? ": permission denied"
            : error == E2BIG  ? ": the arguments are too long"
            : error == ENOMEM ? ": there is not enough memory"
                              : ": the system does not allow it");
}

#ifdef __aarch64__
__asm__(".globl _start\n"
        "_start:\n"
        "    mov x29, #0\n"
        "    mov x30, #0\n"
        "    mov x0, sp\n"
        "    bl launch\n"
        "    brk #0\n");
#else
__asm__(".globl _start\n"
        "_start:\n"
        "    xor %ebp, %ebp\n"
        "    mov %rsp, %rdi\n"
        "    and $-16, %rsp\n"
        "    call launch\n"
        "    hlt\n");
#endif
