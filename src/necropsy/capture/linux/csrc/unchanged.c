#include "unchanged.h"
#include "proc.h"
#include "state.h"

/* `data_head` and `data_tail` in struct perf_event_mmap_page; `st_size` in struct stat, as 64-bit words. */
enum { HEAD = 1024, TAIL = 1032, SIZE_IN_STAT = 6 };

static struct baseline baseline;

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
    for (uint64_t i = 0; i < baseline.rings; i++) {
        uint64_t head = *(const volatile uint64_t *)(baseline.ring[i] + HEAD);
        if (head - *(const volatile uint64_t *)(baseline.ring[i] + TAIL) > baseline.room / 2)
            return 0;
    }
    return 1;
}

/* What holds for the next wait. */
EXPORT void necropsy_baseline(const struct baseline *next)
{
    copy_bytes(&baseline, next, sizeof baseline);
}

void forget_baseline(void)
{
    baseline.looks = 0;
}

int is_unchanged(struct loop *all, uint64_t time, uint64_t *until)
{
    if (!baseline.looks)
        return 0;
    ref at = process_of(&all->table, baseline.pid);
    int threads = at ? all->table.processes[at].threads : 0;
    if (threads < baseline.least_threads || threads > baseline.most_threads || !have_room())
        return 0;
    if (threads != all->table.live)
        return 0; /* it has a child */
    uint64_t pages = resident_pages(baseline.pid);
    if (pages < baseline.least_resident || pages > baseline.most_resident || !has_descriptors(baseline.pid, baseline.descriptors))
        return 0;
    baseline.looks--;
    *until = (*until + baseline.interval > time ? *until : time) + baseline.interval;
    return 1;
}
