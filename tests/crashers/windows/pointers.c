#include "crash.h"

#include <stdlib.h>
#include <string.h>

typedef struct { char before[0x60]; int weight; } Node;
typedef void (*Function)(void);

static volatile int seen;
static const int TABLE[4] = {1, 2, 3, 4};
static unsigned char DATA[16] = {0xC3};

static void null_read(long number) { seen = *(volatile int *)(number * 0); }
static void null_write(long number) { *(volatile int *)(number * 0) = 1; }
static int weight_of(const Node *node) { return node->weight; }
static void null_member(long number) { seen = weight_of((const Node *)(number * 0)); }
static void null_call(long number) { ((Function)(number * 0))(); }
static void null_copy(long number) {
  char here[64];
  void *(*volatile copy)(void *, const void *, size_t) = memcpy;
  copy(here, (const void *)(size_t)(number * 0), sizeof here);
  seen = here[3];
}

static void *some(DWORD kind, DWORD protection) {
  void *page = VirtualAlloc(NULL, 0x10000, kind, protection);
  if (!page) ExitProcess(97);
  return page;
}

static void wild_read(long number) { seen = *(volatile int *)(0x123456789000ull + number); }
static void wild_write(long number) { *(volatile int *)(0x123456789000ull + number) = 1; }
static void non_canonical_read(long number) { seen = *(volatile int *)(0x4141414141414141ull + number); }
static void non_canonical_write(long number) { *(volatile int *)(0x4141414141414141ull + number) = 1; }
static void read_reserved(long number) { seen = ((volatile int *)some(MEM_RESERVE, PAGE_NOACCESS))[number]; }
static void read_freed_page(long number) {
  volatile int *page = some(MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
  page[number] = 1;
  VirtualFree((void *)page, 0, MEM_RELEASE);
  seen = page[number];
}
static void write_constant(long number) { *(volatile int *)&TABLE[number] = 5; }
static void write_code(long number) { *(volatile unsigned char *)((size_t)write_constant + number) = 0x90; }
static void write_readonly(long number) {
  ((volatile int *)some(MEM_RESERVE | MEM_COMMIT, PAGE_READONLY))[number] = 1;
}
static void touch_guard(long number) {
  seen = ((volatile int *)some(MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE | PAGE_GUARD))[number];
}

static void call_data(long number) { ((Function)(size_t)(DATA + number))(); }
static void call_heap(long number) {
  unsigned char *block = malloc(64);
  memset(block, 0xC3, 64);
  ((Function)(size_t)(block + number))();
}
static void call_unmapped(long number) { ((Function)(size_t)(0x123456789000ull + number))(); }
static void call_non_canonical(long number) { ((Function)(size_t)(0x4141414141414141ull + number))(); }

static void misaligned_load(long number) {
  static __attribute__((aligned(32))) float numbers[16];
  const char *odd = (const char *)numbers + 4 + number;
  __asm__ volatile("movaps (%0), %%xmm0" : : "r"(odd) : "xmm0", "memory");
}

/* Through a library that does not know us: the C library's qsort calls back. */
static int compare(const void *one, const void *other) {
  const Node *const *left = one, *const *right = other;
  return weight_of(*left) - weight_of(*right);
}
static void sort_nodes(long count) {
  Node *nodes[8] = {0};
  qsort(nodes, (size_t)count, sizeof *nodes, compare);
}
static void callback(long number) { sort_nodes(number ? number : 8); }

const Verb POINTERS[] = {
    {"null_read", null_read}, {"null_write", null_write}, {"null_member", null_member},
    {"null_call", null_call}, {"null_copy", null_copy}, {"wild_read", wild_read},
    {"wild_write", wild_write}, {"non_canonical_read", non_canonical_read},
    {"non_canonical_write", non_canonical_write}, {"read_reserved", read_reserved},
    {"read_freed_page", read_freed_page}, {"write_constant", write_constant}, {"write_code", write_code},
    {"write_readonly", write_readonly}, {"touch_guard", touch_guard}, {"call_data", call_data},
    {"call_heap", call_heap}, {"call_unmapped", call_unmapped}, {"call_non_canonical", call_non_canonical},
    {"misaligned_load", misaligned_load}, {"callback", callback}, {0, 0}};
