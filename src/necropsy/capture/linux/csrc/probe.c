/* The log probe's members: a map in which the kernel keeps, for each process that is heard, the numbers of its runs.
 *
 * The key is a descriptor of the process. The kernel removes the entry when the process ends.
 */
#include "probe.h"

enum { SYS_pidfd_open = 434, MAP_LOOKUP = 1, MAP_UPDATE = 2, ONLY_NEW = 1, EEXIST = 17 };

struct entry { /* union bpf_attr */
    uint32_t map, unused;
    uint64_t key, value, flags;
};

static int access_map(int command, int members, int process, uint32_t *runs, uint64_t flags)
{
    struct entry entry = {(uint32_t)members, 0, (uint64_t)&process, (uint64_t)runs, flags};
    return (int)call3(SYS_bpf, command, (long)&entry, sizeof entry);
}

EXPORT int probe_add(int members, uint32_t run, int pid)
{
    uint32_t runs[2] = {run, 0};
    int process = (int)call3(SYS_pidfd_open, pid, 0, 0);
    if (process < 0)
        return process;
    int result = access_map(MAP_UPDATE, members, process, runs, ONLY_NEW);
    if (result == -EEXIST) { /* it is heard by the run that this one was started in, or was added before */
        result = access_map(MAP_LOOKUP, members, process, runs, 0);
        if (!result && runs[0] != run) {
            runs[1] = run;
            result = access_map(MAP_UPDATE, members, process, runs, 0);
        }
    }
    call1(SYS_close, process);
    return result;
}
