// Flags: -O0
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <signal.h>

static volatile char sink;

void truncated_file(void) {
  char name[] = "/tmp/truncated-XXXXXX";
  int fd = mkstemp(name);
  unlink(name);
  if (fd < 0 || ftruncate(fd, 8192) != 0) _exit(9);
  char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  p[4096] = 1;
  if (ftruncate(fd, 4096) != 0) _exit(9);
  sink = p[4096];
}

static char *page;
static void make_writable(int signo) { (void)signo; mprotect(page, 4096, PROT_READ | PROT_WRITE); }

// A fault that the program expects and mends: garbage collectors and debuggers of memory live on it.
void mended_fault(void) {
  struct sigaction action = {.sa_handler = make_writable}, before;
  page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  sigaction(SIGSEGV, &action, &before);
  page[0] = 1;
  sigaction(SIGSEGV, &before, NULL);
}
