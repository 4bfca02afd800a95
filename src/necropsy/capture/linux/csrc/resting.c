#include "resting.h"
#include "proc.h"
#include "state.h"

/* `data_head` and `data_tail` in struct perf_event_mmap_page; `st_size` in struct stat, as 64-bit words. */
enum { HEAD = 1024, TAIL = 1032, SIZE_IN_STAT = 6 };

static struct rest rest;

/* The second number of /proc/PID/statm: pages in memory; 0 where it is gone. */
static uint64_t resident_pages(int pid)
{
    char text[128] = {0}, *at = text;
    read_proc(pid, "/statm", text, sizeof text - 1);
    while (*at && *at != ' ')
        at++;
    uint64_t pages = 0;
    for (at += *at == ' '; *at >= '0' && *at <= '9'; at++)
        pages = pages * 10 + (uint64_t)(*at - '0');
    return pages;
}

/* As many files are open: Linux 6.2 and later say it as the size of the folder. */
static int has_descriptors(int pid, uint64_t wanted)
{
    char path[PROC_PATH];
    uint64_t about[18] = {0}; /* struct stat */
    proc_path(path, pid, "/fd");
    return call4(SYS_newfstatat, AT_CWD, (long)path, (long)about, 0) == 0 && about[SIZE_IN_STAT] == wanted;
}

/* A ring that is full has lost something: it is read in time. */
static int have_room(void)
{
    for (uint64_t i = 0; i < rest.rings; i++) {
        uint64_t head = *(const volatile uint64_t *)(rest.ring[i] + HEAD);
        if (head - *(const volatile uint64_t *)(rest.ring[i] + TAIL) > rest.room / 2)
            return 0;
    }
    return 1;
}

/* What holds for the next wait; no looks: nothing. */
EXPORT void necropsy_rest(const struct rest *next)
{
    copy_bytes(&rest, next, sizeof rest);
}

int may_rest(struct loop *all, uint64_t time, uint64_t *until)
{
    if (!rest.looks)
        return 0;
    ref at = process_of(&all->table, rest.pid);
    int threads = at ? all->table.processes[at].threads : 0;
    if (threads < rest.least_threads || threads > rest.most_threads || !have_room())
        return 0;
    uint64_t pages = resident_pages(rest.pid);
    if (pages < rest.least_resident || pages > rest.most_resident || !has_descriptors(rest.pid, rest.descriptors))
        return 0;
    rest.looks--;
    *until = (*until + rest.interval > time ? *until : time) + rest.interval;
    return 1;
}
