// Dies in the way that its argument names. The cores beside this file are its, from a kernel for AArch64: make_cores.py.
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <stdexcept>
#include <sys/mman.h>
#include <sys/prctl.h>

#define KEEP __attribute__((noinline, noclone))
#define PLAIN __attribute__((noinline, noclone, target("branch-protection=none")))

volatile int sink;
volatile long zero;

extern "C" {

KEEP int read_null(int *p) { return p[4] + 1; }
KEEP void write_null(int *p) { *p = 7; }
KEEP int reads_below(int *p) { int got = read_null(p); sink = got; return got + 1; }

KEEP int odd(int n);
KEEP int even(int n) { sink = n; return odd(n + 1) + 1; }
KEEP int odd(int n) { sink = n; return even(n + 1) + 2; }
PLAIN int dig(int n) { sink = n; return dig(n + 1) + 1; }

KEEP void smash(const char *from, size_t size) {
    char local[16];
    memcpy(local, from, size);
    sink = local[3];
}

KEEP void smash_unprotected(const char *from, size_t size) __attribute__((optimize("no-stack-protector")));
KEEP void smash_unprotected(const char *from, size_t size) {
    char local[16];
    memcpy(local, from, size);
    sink = local[3];
}

KEEP void trap(int n) { if (n >= 0) __builtin_trap(); }
KEEP void call(void (*f)()) { f(); sink = 1; }
KEEP void fill(char *at, size_t size) { memset(at, 1, size); sink = at[0]; }
KEEP int add_unaligned(long *p) { long was; __asm__ volatile("ldaddal %1, %0, [%2]" : "=r"(was) : "r"(1L), "r"(p) : "memory"); return (int)was; }
KEEP void store_exclusive(long *p) { long was; __asm__ volatile("ldxr %0, [%1]" : "=r"(was) : "r"(p) : "memory"); sink = (int)was; }
KEEP void ubsan_trap() { __asm__ volatile("brk #0x5512"); }
KEEP void authenticate(void *p) { for (long by = 0; by < 64; by++) { void *q = p; __asm__ volatile("autia %0, %1\n\tldr %0, [%0]" : "+r"(q) : "r"(by)); sink = (int)(intptr_t)q; } }  // of 3 bits, one wrong one of 8 is right
KEEP void large_frame(int n) { char local[1 << 20]; fill(local + n, 100); sink = local[n]; }
KEEP void *recurse_in_thread(void *n) { return (void *)(intptr_t)even((int)(intptr_t)n); }
KEEP void branch_target(char *p) { __asm__ volatile("br %0" : : "r"(p)); }
KEEP void branch_to_no_target() {
    // A guarded page of code (PROT_BTI) that begins with no landing pad: nop; ret.
    static const uint32_t code[] = {0xd503201f, 0xd65f03c0};
    char *p = (char *)mmap(nullptr, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(p, code, sizeof code);
    mprotect(p, 1 << 16, PROT_READ | PROT_EXEC | 0x10);
    __builtin___clear_cache(p, p + 8);
    branch_target(p);
}
KEEP void jump_into_data() { call((void (*)())(void *)&sink); }
KEEP int read_tagged(int *p) { return *p; }
KEEP void mismatched_tag() {
    // Synchronous checks; memory of tag 1 is read through a pointer of tag 2.
    prctl(55, 1 | 1 << 1 | 0xfffe << 3, 0, 0, 0);
    char *p = (char *)mmap(nullptr, 1 << 16, PROT_READ | PROT_WRITE | 0x20, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    __asm__ volatile(".arch armv8.5-a+memtag\n\tstg %0, [%0]" : : "r"(p + (1L << 56)) : "memory");
    sink = read_tagged((int *)(p + (2L << 56)));
}
KEEP void invoke(int) { sink = read_null((int *)zero); }
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    char text[256];
    memset(text, 'A', sizeof text);
    if (!strcmp(how, "null-read")) return reads_below((int *)zero);
    if (!strcmp(how, "null-write")) write_null((int *)zero);
    if (!strcmp(how, "wild-read")) return reads_below((int *)0x123456789000);
    if (!strcmp(how, "tagged-read")) return reads_below((int *)0x4141414141414141);
    if (!strcmp(how, "recursion")) return even((int)zero);
    if (!strcmp(how, "deep-recursion")) return dig((int)zero);
    if (!strcmp(how, "large-frame")) large_frame((int)zero);
    if (!strcmp(how, "smash")) smash(text, 64);
    if (!strcmp(how, "smash-unprotected")) smash_unprotected(text, 64);
    if (!strcmp(how, "abort")) abort();
    if (!strcmp(how, "exception")) throw std::runtime_error("the table is empty");
    if (!strcmp(how, "double-free")) { void *p = malloc(1000); void *q = malloc(1000); free(p); sink = q == p; free(p); }
    if (!strcmp(how, "trap")) trap(argc);
    if (!strcmp(how, "ubsan-trap")) ubsan_trap();
    if (!strcmp(how, "null-call")) call((void (*)())zero);
    if (!strcmp(how, "data-jump")) jump_into_data();
    if (!strcmp(how, "memset-null")) fill((char *)zero, 100);
    if (!strcmp(how, "readonly")) fill((char *)(intptr_t)"constant", 3);
    if (!strcmp(how, "unaligned-atomic")) return add_unaligned((long *)(text + 13));
    if (!strcmp(how, "unaligned-exclusive")) store_exclusive((long *)(text + 1));
    if (!strcmp(how, "pac")) authenticate(text);
    if (!strcmp(how, "mte")) mismatched_tag();
    if (!strcmp(how, "bti")) branch_to_no_target();
    if (!strcmp(how, "thread-overflow")) {
        pthread_t t; pthread_attr_t a; pthread_attr_init(&a); pthread_attr_setstacksize(&a, 128 << 10);
        pthread_create(&t, &a, recurse_in_thread, nullptr); pthread_join(t, nullptr);
    }
    if (!strcmp(how, "bus")) {
        FILE *f = tmpfile(); char *p = (char *)mmap(nullptr, 1 << 16, PROT_READ, MAP_SHARED, fileno(f), 0); sink = p[100];
    }
    if (!strcmp(how, "in-handler")) { signal(SIGUSR1, invoke); raise(SIGUSR1); }
    if (!strcmp(how, "illegal")) __asm__ volatile(".inst 0x00000001");
    if (!strcmp(how, "division")) { sink = (int)(7 / zero); printf("%d\n", sink); }
    return 0;
}
