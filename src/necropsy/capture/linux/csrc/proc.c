#include "proc.h"

enum { O_CLOEXEC = 0x80000 };

static char *decimal(char *at, unsigned value)
{
    char digits[12];
    int count = 0;
    do
        digits[count++] = (char)('0' + value % 10);
    while (value /= 10);
    while (count)
        *at++ = digits[--count];
    return at;
}

void proc_path(char *path, int tid, const char *name)
{
    copy_bytes(path, "/proc/", 6);
    path = decimal(path + 6, (unsigned)tid);
    while ((*path++ = *name++))
        ;
}

long read_proc(int tid, const char *name, char *to, long size)
{
    char path[PROC_PATH];
    proc_path(path, tid, name);
    long file = call4(SYS_openat, AT_CWD, (long)path, O_CLOEXEC, 0);
    if (file < 0)
        return 0;
    long got = call3(SYS_read, file, (long)to, size);
    call1(SYS_close, file);
    return got > 0 ? got : 0;
}

long read_status(int tid, char *text, long size)
{
    long got = read_proc(tid, "/status", text, size - 1);
    text[got] = 0;
    return got;
}

long field(const char *text, const char *name, int base)
{
    for (const char *line = text; *line;) {
        const char *at = line, *wanted = name;
        while (*wanted && *at == *wanted)
            at++, wanted++;
        if (!*wanted) {
            unsigned long value = 0;
            while (*at == ' ' || *at == '\t')
                at++;
            for (;; at++) {
                int digit = *at >= '0' && *at <= '9' ? *at - '0' : *at >= 'a' && *at <= 'f' ? *at - 'a' + 10 : 99;
                if (digit >= base)
                    break;
                value = value * (unsigned long)base + (unsigned long)digit;
            }
            return (long)value;
        }
        while (*line && *line != '\n')
            line++;
        line += *line == '\n';
    }
    return -1;
}

long read_stack(int tid, uint64_t address, void *to, long size)
{
    uint64_t here[2] = {(uint64_t)to, (uint64_t)size}, there[2] = {address, (uint64_t)size}; /* struct iovec */
    long got = call6(SYS_process_vm_readv, tid, (long)here, 1, (long)there, 1, 0);
    return got > 0 ? got : 0;
}

int is_running(int tid)
{
    char text[STATUS_TEXT], state;
    if (!read_status(tid, text, sizeof text))
        return 0;
    for (const char *at = text; *at; at++)
        if (at[0] == '\n' && at[1] == 'S' && at[2] == 't' && at[6] == ':') {
            state = at[8];
            return state != 'Z' && state != 'X';
        }
    return 1;
}

int dispositions(int tid, uint64_t *caught, uint64_t *ignored)
{
    char text[STATUS_TEXT];
    if (!read_status(tid, text, sizeof text))
        return 0;
    long has = field(text, "SigCgt:", 16);
    *caught = (uint64_t)has;
    *ignored = (uint64_t)field(text, "SigIgn:", 16);
    return has != -1 || text[0] != 0;
}
