/* Uses a share of one limit, and ends well if that was less than all of it: near_limits KIND PERCENT */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *kind;
static int percent;
static char *top;
static size_t size;
static volatile int done;

static int is(const char *name) { return !strcmp(kind, name); }
static void check(int fine) { if (!fine) exit(1); }
static int enough(volatile char *at) { return (size_t)(top - (char *)at) >= size / 100 * percent; }

/* --- stacks --- */

__attribute__((noinline)) static int recursion(void) {
  volatile char room[300]; room[0] = 1;
  return enough(room) ? 0 : recursion() + room[0];
}
__attribute__((noinline)) static int large_frames(void) {
  volatile char room[16000]; room[0] = 1;
  return enough(room) ? 0 : large_frames() + room[0];
}
static int compare(const void *one, const void *other) {
  int pair[2] = {*(const int *)other, *(const int *)one};
  if (!enough((char *)pair)) qsort(pair, 2, sizeof *pair, compare);
  return pair[0] - pair[1];
}
__attribute__((noinline)) static void variable_length_array(long rest) {
  volatile char room[rest];
  for (long at = rest - 1; at >= 0; at -= 512) room[at] = 1;
}
__attribute__((noinline)) static void block(long rest) {
  volatile char *room = __builtin_alloca(rest);
  for (long at = rest - 1; at >= 0; at -= 512) room[at] = 1;
}
static void dive(void) {
  char here;
  long rest = (long)(size / 100 * percent) - (top - &here);
  if (is("vla")) variable_length_array(rest);
  else if (is("alloca")) block(rest);
  else if (is("large-frames")) large_frames();
  else if (is("callbacks")) { int pair[2] = {2, 1}; qsort(pair, 2, sizeof *pair, compare); }
  else recursion();
}
static void *thread(void *unused) {
  pthread_attr_t own; void *low; size_t whole;
  pthread_getattr_np(pthread_self(), &own);
  pthread_attr_getstack(&own, &low, &whole);
  top = (char *)low + whole; size = whole;
  dive();
  done = 1;
  if (is("stays")) pause();
  if (is("pthread-exit")) pthread_exit(0);
  return unused;
}
static void in_a_thread(size_t wanted) {
  pthread_attr_t how; pthread_t one;
  pthread_attr_init(&how);
  if (is("own-memory")) {
    char *memory = mmap(0, wanted + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(memory, 4096, PROT_NONE);
    pthread_attr_setstack(&how, memory + 4096, wanted);
  } else if (wanted) {
    pthread_attr_setstacksize(&how, wanted);
  }
  check(!pthread_create(&one, &how, thread, 0));
  if (is("stays")) while (!done) usleep(1000);
  else pthread_join(one, 0);
}
static void in_main(void) {
  struct rlimit limit; char line[512]; FILE *maps = fopen("/proc/self/maps", "r");
  getrlimit(RLIMIT_STACK, &limit); size = limit.rlim_cur;
  while (fgets(line, sizeof line, maps)) if (strstr(line, "[stack]")) top = (char *)strtoul(strchr(line, '-') + 1, 0, 16);
  dive();
}

/* --- limits --- */

static long number(const char *path) {
  char text[64] = ""; FILE *file = fopen(path, "r");
  if (!file || !fgets(text, sizeof text, file)) exit(3);
  fclose(file);
  return atol(text);
}
static long status(const char *name) {
  char line[256]; long value = 0; FILE *file = fopen("/proc/self/status", "r");
  while (fgets(line, sizeof line, file)) if (!strncmp(line, name, strlen(name))) value = atol(line + strlen(name)) * 1024;
  fclose(file);
  return value;
}
static long soft(int resource) {
  struct rlimit limit; getrlimit(resource, &limit);
  return (long)limit.rlim_cur;
}
static long part(long limit) { return limit / 100 * percent; }
static void take(int resource, const char *in_use, int rights) {
  long rest = part(soft(resource)) - status(in_use);
  check(mmap(0, rest, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
}
static void *sleeps(void *unused) { pause(); return unused; }
static void threads(long wanted) {
  pthread_attr_t how; pthread_t one;
  pthread_attr_init(&how); pthread_attr_setstacksize(&how, 65536);
  for (long count = 1; count < wanted; count++) check(!pthread_create(&one, &how, sleeps, 0));
  usleep(400000); /* there is no peak of the kernel's: a look at it counts them */
}
static void threads_of_a_user(void) { /* root has no such limit */
  struct rlimit limit = {100, 4096}; uid_t user = 100000 + getpid(); /* nobody else is that one meanwhile */
  check(!setrlimit(RLIMIT_NPROC, &limit) && !setresuid(user, user, user));
  threads(part(100));
}
static void group(const char *folder) { /* KIND is memory:FOLDER or pids:FOLDER */
  char limit[512], used[512];
  if (!strncmp(kind, "pids", 4)) {
    snprintf(limit, sizeof limit, "%s/pids.max", folder);
    threads(part(number(limit)));
    return;
  }
  snprintf(limit, sizeof limit, "%s/memory.max", folder);
  snprintf(used, sizeof used, "%s/memory.current", folder);
  if (access(limit, R_OK)) {
    snprintf(limit, sizeof limit, "%s/memory.limit_in_bytes", folder);
    snprintf(used, sizeof used, "%s/memory.usage_in_bytes", folder);
  }
  long wanted = part(number(limit)), rest = wanted - number(used);
  char *memory = mmap(0, rest, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (long at = 0; at < rest; at += 4096) memory[at] = 1;
}
static void mappings(void) {
  long wanted = part(number("/proc/sys/vm/max_map_count")), count = 0;
  FILE *maps = fopen("/proc/self/maps", "r");
  for (int one; (one = fgetc(maps)) != EOF;) count += one == '\n';
  for (; count < wanted; count++)
    check(mmap(0, 4096, count % 2 ? PROT_READ : PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
}
static void shared_memory(void) {
  static char page[4096]; long rest = part(4 << 20); int file = open("/dev/shm/near-limits", O_CREAT | O_WRONLY, 0600);
  check(file >= 0);
  for (; rest > 0; rest -= 4096) check(write(file, page, 4096) == 4096);
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  kind = argv[1]; percent = atoi(argv[2]);
  char *folder = strchr(argv[1], ':');
  if (folder) group(folder + 1);
  else if (is("address-space")) take(RLIMIT_AS, "VmSize:", PROT_READ);
  else if (is("data")) take(RLIMIT_DATA, "VmData:", PROT_READ | PROT_WRITE);
  else if (is("files")) for (long count = 3; count < part(soft(RLIMIT_NOFILE)); count++) check(open("/dev/null", O_RDONLY) >= 0);
  else if (is("pipes")) for (int two[2], count = 3; count + 1 < part(soft(RLIMIT_NOFILE)); count += 2) check(!pipe(two));
  else if (is("threads")) threads_of_a_user();
  else if (is("mappings")) mappings();
  else if (is("shared-memory")) shared_memory();
  else if (!strncmp(kind, "main-", 5)) { kind += 5; in_main(); }
  else in_a_thread(argc > 3 ? atol(argv[3]) : 0);
  _exit(0);
}
