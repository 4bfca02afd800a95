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

/* The file was executed before, and is known as ordinary. */
static int is_known(const struct loop *all, int pid)
{
    struct file file;
    if (!file_of(pid, &file))
        return 0;
    const struct file *known = place_of(all, &file);
    return known->inode == file.inode && known->device == file.device && known->changed_s == file.changed_s
           && known->changed_ns == file.changed_ns;
}

void remember_ordinary(struct loop *all, int pid)
{
    struct file file;
    if (file_of(pid, &file))
        *place_of(all, &file) = file;
}

/* Arguments and environment, each text with its NUL. */
struct words {
    const char *arguments, *environment;
    long arguments_size, environment_size;
};

/* They lie side by side, above the pointers to them where the stack of a new program begins (see core_redaction.py).
 * 0 where they are not found so: in a program of 32 bits, without an environment, or too long. */
static int words_on_stack(const struct loop *all, int pid, struct words *to)
{
    uint64_t registers[REGISTERS_SIZE / 8];
    const uint64_t *stack = (const uint64_t *)all->environment;
    if (read_registers(pid, registers) < 0 || !is_of_64_bits(registers))
        return 0;
    uint64_t low = registers[STACK_AT / 8];
    long got = read_stack(pid, low, all->environment, ENVIRONMENT), count = got / 8, at;
    uint64_t arguments = count > 2 ? stack[0] : 0;
    if (!arguments || arguments > (uint64_t)count - 3 || stack[arguments + 1])
        return 0;
    uint64_t first = stack[1], end = stack[arguments + 2], last = 0;
    for (at = (long)arguments + 2; at < count && stack[at]; at++)
        last = stack[at];
    if (low % 8 || !last || end <= first || last < end || first - low > (uint64_t)got || last - low > (uint64_t)got)
        return 0;
    long stop = (long)(last - low);
    while (stop < got && all->environment[stop])
        stop++;
    if (stop++ >= got)
        return 0;
    *to = (struct words){all->environment + (first - low), all->environment + (end - low), (long)(end - first),
                         stop - (long)(end - low)};
    return 1;
}

/* The same from /proc; 0 where they take more room than there is. */
static int words_in_proc(const struct loop *all, int pid, struct words *to)
{
    char *second = all->environment + ENVIRONMENT;
    *to = (struct words){all->environment, second, read_proc(pid, "/cmdline", all->environment, ENVIRONMENT),
                         read_proc(pid, "/environ", second, ENVIRONMENT)};
    return to->arguments_size < ENVIRONMENT && to->environment_size < ENVIRONMENT;
}

/* A library is put before the others. */
static int preloads(const struct words *words)
{
    static const char name[] = "LD_PRELOAD=";
    const char *text = words->environment;
    for (long at = 0; at < words->environment_size; at++) {
        long same = 0;
        while (name[same] && at + same < words->environment_size && text[at + same] == name[same])
            same++;
        if (!name[same])
            return 1;
        while (at < words->environment_size && text[at])
            at++;
    }
    return 0;
}

/* What an ordinary process has executed; 0 where it takes more room than there is. */
static int became(struct loop *all, int pid, const struct words *words)
{
    char path[PROC_PATH], *text = all->text + all->text_used;
    if (!words->arguments_size || words->arguments_size >= MOST_TEXT / 2)
        return 0;
    proc_path(path, pid, "/exe");
    long path_length = call4(SYS_readlinkat, AT_CWD, (long)path, (long)text, MOST_TEXT / 2);
    if (path_length <= 0 || path_length == MOST_TEXT / 2)
        return 0;
    copy_bytes(text + path_length, words->arguments, (size_t)words->arguments_size);
    struct record *one = record(all, BECAME, pid, pid);
    one->text = (uint32_t)all->text_used;
    one->path_length = (uint32_t)path_length;
    one->words_length = (uint32_t)words->arguments_size;
    all->text_used += (int32_t)(path_length + words->arguments_size);
    return 1;
}

/* Nothing but its name is of interest. */
static int is_served(struct loop *all, int pid)
{
    struct words words;
    return is_known(all, pid) && (words_on_stack(all, pid, &words) || words_in_proc(all, pid, &words))
           && !preloads(&words) && became(all, pid, &words);
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
    owner->stack = owner->stack_limit = 0;
    owner->peak_rss = owner->peak_size = owner->faults = owner->repeats = 0;
    owner->quiet_until = 0;
    add_thread(&all->table, process, pid);
    if ((int)message(tid) != pid)
        tell_probe(all, pid); /* the kernel knows it by its first thread, which may be another one now */
    if (decides || !is_served(all, pid))
        return report(out, EXECUTED, tid, pid, (int)message(tid));
    cont(tid, 0);
    return 0;
}
