#include "exec.h"
#include "births.h"
#include "holding.h"
#include "journal.h"
#include "proc.h"
#include "ptrace.h"

static struct file *place_of(const struct loop *all, const struct file *wanted)
{
    struct file *found = NULL;
    for (unsigned at = (unsigned)wanted->inode, tries = 0; tries < 8; tries++, at++) {
        found = &all->files[at % FILES];
        if (!found->inode || (found->inode == wanted->inode && found->device == wanted->device))
            break;
    }
    return found; /* the last one that was looked at gives way */
}

static int file_of(int pid, struct file *to)
{
    char path[PROC_PATH];
    uint64_t about[18]; /* struct stat: st_dev, st_ino, st_nlink, st_mode ..., st_ctime, st_ctime_nsec */
    proc_path(path, pid, "/exe");
    if (call4(SYS_newfstatat, AT_CWD, (long)path, (long)about, 0) < 0)
        return 0;
    *to = (struct file){about[0], about[1], about[13], about[14]};
    return 1;
}

/* Nothing but its name is of interest: the file is known as ordinary, and no library was put before the others. */
static int is_ordinary(const struct loop *all, int pid)
{
    struct file file;
    if (!file_of(pid, &file))
        return 0;
    const struct file *known = place_of(all, &file);
    if (known->inode != file.inode || known->device != file.device || known->changed_s != file.changed_s
        || known->changed_ns != file.changed_ns)
        return 0;
    static const char name[] = "LD_PRELOAD=";
    long size = read_proc(pid, "/environ", all->environment, ENVIRONMENT);
    for (long at = 0; at < size; at++) {
        long same = 0;
        while (name[same] && at + same < size && all->environment[at + same] == name[same])
            same++;
        if (!name[same])
            return 0;
        while (at < size && all->environment[at])
            at++;
    }
    return size < ENVIRONMENT;
}

void remember_ordinary(struct loop *all, int pid)
{
    struct file file;
    if (file_of(pid, &file))
        *place_of(all, &file) = file;
}

/* What an ordinary process has executed; 0 where it takes more room than there is. */
static int became(struct loop *all, int pid)
{
    char path[PROC_PATH], *text = all->text + all->text_used;
    proc_path(path, pid, "/exe");
    long path_length = call4(SYS_readlinkat, AT_CWD, (long)path, (long)text, MOST_TEXT / 2);
    if (path_length <= 0 || path_length == MOST_TEXT / 2)
        return 0;
    long words_length = read_proc(pid, "/cmdline", text + path_length, MOST_TEXT / 2);
    if (!words_length || words_length == MOST_TEXT / 2)
        return 0;
    struct record *one = record(all, BECAME, pid, pid);
    one->text = (uint32_t)all->text_used;
    one->path_length = (uint32_t)path_length;
    one->words_length = (uint32_t)words_length;
    all->text_used += (int32_t)(path_length + words_length);
    return 1;
}

int on_exec(struct loop *all, ref thread, int tid, struct event *out)
{
    ref process = all->table.threads[thread].process;
    struct process *owner = &all->table.processes[process];
    int pid = owner->pid, decides = owner->holding || owner->told || pid == all->root;
    end_hold(all, process);
    while (owner->first)
        drop_thread(&all->table, owner->first);
    owner->running = 0;
    owner->executed = 1;
    owner->holding = owner->killed = owner->told = owner->measured = 0;
    owner->peak_rss = owner->peak_size = owner->faults = owner->repeats = 0;
    owner->quiet_until = 0;
    add_thread(&all->table, process, pid);
    if ((int)message(tid) != pid)
        tell_probe(all, pid); /* the kernel knows it by its first thread, which may be another one now */
    if (decides || !is_ordinary(all, pid) || !became(all, pid))
        return report(out, EXECUTED, tid, pid, (int)message(tid));
    cont(tid, 0);
    return 0;
}
