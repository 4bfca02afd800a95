/* Misuses and uses of heap blocks, one verb each; the tests preload the guard allocator. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "line %d: %s\n", __LINE__, #what); exit(1); } } while (0)

static size_t page; /* its size in bytes */

__attribute__((noinline)) static char *make_buffer(size_t alignment, size_t size) {
  char *block = aligned_alloc(alignment, size);
  CHECK(block);
  memset(block, 0, size);
  return block;
}
__attribute__((noinline)) static void fill_rows(volatile char *block, long from, long to) {
  for (long at = from; at < to; at++) block[at] = (char)at;
}
__attribute__((noinline)) static long last_number(volatile long *numbers, long size) { return numbers[size - 1]; }
__attribute__((noinline)) static long sum_rows(volatile char *block, long from, long to) {
  long sum = 0;
  for (long at = from; at < to; at++) sum += block[at];
  return sum;
}
__attribute__((noinline)) static void release(char *block) { free(block); }

/* The signal that ends a child which writes at block[at], and then frees the block. */
static int signal_of_write(char *block, long at) {
  pid_t child = fork();
  int status;
  if (!child) {
    close(2);
    fill_rows(block, at, at + 1);
    free(block);
    _exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void alignments(void) {
  const size_t sizes[] = {0, 1, 3, 16, 63, 64, 65, 100, 4095, 4096, 4097, 70000, 3 << 20};
  for (size_t alignment = 1; alignment <= page; alignment *= 2)
    for (size_t at = 0; at < sizeof sizes / sizeof *sizes; at++) {
      size_t size = sizes[at];
      char *block = alignment < 32 ? malloc(size) : aligned_alloc(alignment, size);
      CHECK(block && (uintptr_t)block % alignment == 0);
      CHECK(malloc_usable_size(block) == size);
      memset(block, 7, size);
      free(block);
      CHECK(!posix_memalign((void **)&block, alignment < 8 ? 8 : alignment, size));
      CHECK((uintptr_t)block % alignment == 0);
      memset(block, 7, size);
      free(block);
    }
  for (size_t alignment = 16; alignment <= page; alignment *= 2) {
    char *whole = make_buffer(alignment, page), *part = make_buffer(alignment, page - 4), *none = make_buffer(alignment, 0);
    CHECK(signal_of_write(whole, page - 1) == 0);
    CHECK(signal_of_write(whole, page) == SIGSEGV);
    CHECK(signal_of_write(whole, -1) == SIGSEGV);
    CHECK(signal_of_write(part, page - 4) == SIGABRT);
    CHECK(signal_of_write(none, 0) == SIGSEGV);
    free(whole), free(part), free(none);
  }
  CHECK(aligned_alloc(2 * page, 2 * page) && memalign(1 << 20, 10)); /* beyond a page: from the C library */
  char *block = NULL;
  CHECK(posix_memalign((void **)&block, 24, 8) == EINVAL && !block);
  CHECK(((uintptr_t)valloc(10) | (uintptr_t)pvalloc(10)) % page == 0);
  CHECK(malloc_usable_size(NULL) == 0);
  free(NULL);
}

static void reallocations(void) {
  char *block = realloc(NULL, 10);
  memcpy(block, "0123456789", 10);
  for (size_t size = 11; size < 300000; size = size * 3 / 2) {
    block = realloc(block, size);
    CHECK(!memcmp(block, "0123456789", 10));
    block[size - 1] = 'x';
  }
  for (size_t size = 200000; size > 10; size = size * 2 / 3) {
    block = realloc(block, size);
    CHECK(!memcmp(block, "0123456789", 10));
  }
  CHECK(signal_of_write(block, malloc_usable_size(block) + page) == SIGSEGV);
  CHECK(realloc(block, 0) == NULL);
  errno = 0;
  CHECK(calloc(SIZE_MAX / 2, 3) == NULL && errno == ENOMEM);
}

static void zeroed(void) {
  for (int round = 0; round < 300; round++) { /* more than freed blocks keep: their memory comes back */
    const size_t size = (1 << 20) + 64 * round;
    char *block = calloc(1, size);
    CHECK(!block[0] && !memcmp(block, block + 1, size - 1));
    memset(block, 0xff, size);
    free(block);
  }
}

static void *allocate_often(void *mailbox) {
  for (int round = 0; round < 1500; round++) {
    char *block = make_buffer(64, 1 + round * 37 % 9000), *mine = malloc(round % 3000);
    block[0] = 1;
    free(__atomic_exchange_n((char **)mailbox, block, __ATOMIC_SEQ_CST)); /* another thread's, mostly */
    free(mine);
  }
  return NULL;
}

static void threads(int forks) {
  char *mailbox = NULL;
  pthread_t all[4];
  for (int at = 0; at < 4; at++) CHECK(!pthread_create(&all[at], NULL, allocate_often, &mailbox));
  for (int at = 0; at < forks; at++) {
    int status;
    pid_t child = fork();
    if (!child) {
      char *none = NULL;
      allocate_often(&none);
      _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
  }
  for (int at = 0; at < 4; at++) pthread_join(all[at], NULL);
  free(mailbox);
}

static void many(int count) {
  char **all = malloc(count * sizeof *all);
  for (int at = 0; at < count; at++) {
    all[at] = at % 2 ? malloc(1 + at % 200) : aligned_alloc(64, 64);
    CHECK(all[at]);
    all[at][0] = 1;
  }
  for (int at = 0; at < count; at++) free(all[at]);
  free(all);
}

static void *overrun(void *size) {
  fill_rows(make_buffer(64, (size_t)size), 0, (long)size + 1);
  return NULL;
}

/* A stack that ends where its mapping does, as a coroutine's: nothing above it may be read. */
static void on_short_stack(void) {
  pthread_attr_t attributes;
  pthread_t thread;
  (void)attributes, (void)thread;
  char *stack = mmap(NULL, 3 * 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(!mprotect(stack + 65536, 65536, PROT_READ | PROT_WRITE));
  stack_t other = {.ss_sp = stack + 65536, .ss_size = 65536};
  struct sigaction action = {.sa_flags = SA_ONSTACK};
  extern void in_handler(int);
  action.sa_handler = in_handler;
  CHECK(!sigaltstack(&other, NULL) && !sigaction(SIGUSR1, &action, NULL));
  raise(SIGUSR1);
}
void in_handler(int number) { release(make_buffer(64, 100)); (void)number; }

int main(int count, char **words) {
  page = sysconf(_SC_PAGESIZE);
  const char *verb = words[1];
  const long number = count > 2 ? atol(words[2]) : 0;
#define IS(name) !strcmp(verb, name)
  char *block = make_buffer(64, 128);
  if (IS("after")) fill_rows(block, 0, 129);
  else if (IS("after-far")) fill_rows(block, 128 + number, 129 + number);
  else if (IS("read-after")) return (int)sum_rows(block, 0, 129);
  else if (IS("before")) fill_rows(make_buffer(64, page), -1, 0);
  else if (IS("read-long-before")) return (int)last_number((volatile long *)make_buffer(64, page), number);
  else if (IS("freed")) { release(block); fill_rows(block, 8, 9); }
  else if (IS("freed-twice")) { release(block); release(block); }
  else if (IS("filler")) { block = make_buffer(64, 100); fill_rows(block, 102, 104); release(block); }
  else if (IS("filler-before")) { block = make_buffer(64, 100); fill_rows(block, -4, -2); release(block); }
  else if (IS("inside")) release(block + 8);
  else if (IS("null")) fill_rows(NULL, 0, 1);
  else if (IS("thread")) { pthread_t one; pthread_create(&one, NULL, overrun, (void *)256); pthread_join(one, NULL); }
  else if (IS("in-child")) { int status; if (!fork()) fill_rows(block, 0, 129); wait(&status); return WTERMSIG(status) != SIGSEGV; }
  else if (IS("alignments")) alignments();
  else if (IS("reallocations")) reallocations();
  else if (IS("zeroed")) zeroed();
  else if (IS("threads")) threads(0);
  else if (IS("forks")) threads(12);
  else if (IS("many")) many((int)number);
  else if (IS("short-stack")) on_short_stack();
  else return 2;
  void (*disarm)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "necropsy_guard_disarm");
  uint64_t *guard = (uint64_t *)dlsym(RTLD_DEFAULT, "necropsy_guard");
  if (disarm) disarm();
  printf("ended well %d\n", guard && !strcmp((char *)guard, "necropsy guard"));
  return 0;
}
