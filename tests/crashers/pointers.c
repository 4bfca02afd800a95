// Flags: -O0
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct record { char padding[0x60]; long value; };
static volatile long sink;
static const char constant[] = "in .rodata";
static long data[64] = {1};

void null_read(void) { sink = *(volatile long *)0; }
void null_write(void) { *(volatile long *)0 = 1; }
void null_member(void) { struct record *volatile p = NULL; sink = p->value; }
void null_memcpy(void) { char *volatile to = NULL; memcpy(to, constant, 8); }
void null_call(void) { void (*volatile f)(void) = NULL; f(); }
void wild_read(void) { sink = *(volatile long *)0x123456789000; }
void wild_write(void) { *(volatile long *)0x123456789000 = 1; }
void non_canonical_read(void) { sink = *(volatile long *)0x4141414141414141; }
void non_canonical_write(void) { *(volatile long *)0x4141414141414141 = 1; }
void write_constant(void) { *(volatile char *)(uintptr_t)constant = 'x'; }
// The neighbours are ours: what lies below the hole decides whether it looks like the end of a heap.
void read_unmapped(void) {
  const long size = 1 << 20;
  char *p = mmap(NULL, 3 * size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(p + size, size, PROT_READ | PROT_WRITE);
  p[size] = 1;
  munmap(p + size, size);
  sink = p[size];
}
void call_data(void) { void (*volatile f)(void) = (void (*)(void))(uintptr_t)data; f(); }
void call_heap(void) { void (*volatile f)(void) = (void (*)(void))(uintptr_t)malloc(4096); f(); }
void call_unmapped(void) { void (*volatile f)(void) = (void (*)(void))0x123456789000; f(); }
