// One program a rule that blames code, each in two states: it dies, and, compiled with -DFOLLOWED, it does what the
// rule's first advice says and lives. The argument is the rule's name.
#include <emmintrin.h>
#include <fcntl.h>
#include <fenv.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cassert>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

#ifdef FOLLOWED
#define EITHER(dies, lives) lives
#else
#define EITHER(dies, lives) dies
#endif
#define OWN extern "C" __attribute__((noinline, noipa))

// -O1 keeps what goes through these.
template <class T>
__attribute__((noinline, noipa)) T opaque(T value) { return value; }

struct Node { long id, weight; };
OWN long weight(Node *node) { EITHER(, if (!node) return 0;) return node->weight; }
OWN void null_dereference() { weight(opaque<Node *>(nullptr)); }

OWN long element(const long *data, long count, long index) {
  EITHER(, if (index >= count) return 0;)
  return data[index];
}
OWN void invalid_read() { long data[4] = {}; element(opaque<long *>(data), 4, 1L << 40); }

OWN void fill(long *data, long count, long index) {
  EITHER(, if (index >= count) return;)
  data[index] = 1;
}
OWN void invalid_write() { long data[4] = {}; fill(opaque<long *>(data), 4, 1L << 40); }

OWN void upper(char *text) { for (; *text; text++) *text = toupper(*text); }
OWN void write_to_readonly() { const char *text = "name"; upper(EITHER((char *)opaque(text), strdup(text))); }

typedef void (*Callback)();
OWN void notify(Callback callback) { EITHER(, if (!callback) return;) callback(); (void)opaque(0); }
OWN void bad_jump() { notify(opaque<Callback>(nullptr)); }

OWN void add(float *data) {
  __m128 four = EITHER(_mm_load_ps, _mm_loadu_ps)(data);
  _mm_storeu_ps(data, _mm_add_ps(four, four));
}
OWN void misaligned_access() { alignas(16) float data[8] = {}; add(opaque(data) + 1); }

OWN int steps(int size, int batch) { EITHER(, if (batch == 0) return 0;) return size / batch; }
OWN void integer_divide_by_zero() { steps(opaque(7), opaque(0)); }

OWN double mean(double sum, double count) { EITHER(, if (count == 0) return 0;) return sum / count; }
OWN void floating_point_trap() { feenableexcept(FE_DIVBYZERO); volatile double kept = mean(opaque(1.0), opaque(0.0)); (void)kept; }

OWN int kind(int code) {
  switch (code) {
    case 1: return 10;
    case 2: return 20;
    default: EITHER(__builtin_trap(), return 0);
  }
}
OWN void deliberate_trap() { kind(opaque(3)); }

// vfrczpd: AMD only, until Zen
OWN void fraction() { EITHER(__asm__ volatile(".byte 0x8f, 0xe9, 0x78, 0x81, 0xc1"), (void)opaque(0)); }
OWN void illegal_instruction() { fraction(); }

struct Tree { Tree *next; };
OWN long depth(Tree *tree) {
#ifdef FOLLOWED
  long levels = 0;
  for (; tree; tree = tree->next) levels++;
  return levels;
#else
  return tree ? 1 + opaque(depth(tree->next)) : 0;
#endif
}
OWN void stack_overflow_recursion() {
  static Tree trees[1 << 20];
  for (int at = 0; at + 1 < 1 << 20; at++) trees[at].next = &trees[at + 1];
  depth(trees);
}

OWN void table() {
  EITHER(char rows[32 << 20], std::vector<char> rows(32 << 20));
  memset(opaque(&rows[0]), 1, 32 << 20);
}
OWN void stack_overflow_large_frame() { table(); }

OWN void copy_name(const char *name) {
  char local[16];
  EITHER(, if (strlen(name) >= sizeof local) return;)
  char *to = opaque(&local[0]);
  while ((*to++ = *name++)) {}
  (void)opaque(local[3]);
}
OWN void stack_smash() { copy_name("a name that is far too long for its sixteen bytes"); }

OWN void copy_block(const char *from, size_t length) {
  char local[16];
  EITHER(, if (length > sizeof local) return;)
  memcpy(local, from, length);
  (void)opaque(&local[0]);
}
OWN void buffer_overflow_fortify() { copy_block("a name that is far too long", opaque<size_t>(27)); }

OWN void put(char *block, long length, long count) { for (long at = 0; at < EITHER(count, (count < length ? count : length)); at++) block[at] = 9; }
OWN void heap_corruption() {
  char *one = (char *)opaque(malloc(40)), *two = (char *)opaque(malloc(2000));
  put(one, 40, 60);
  free(two);
  free(one);
}

OWN void release(void *block) { free(block); }
OWN void double_free() { void *block = opaque(malloc(40)); free(block); EITHER(release(block), (void)block); }

OWN void count_up(int *block, long count) { for (long at = 0; at < count; at++) block[at] = (int)at; }
OWN void heap_buffer_overflow() {
  int *block = (int *)opaque(malloc(40));
  count_up(block, EITHER(1L << 40, 10));
}

struct Link { Link *next; long value; };
OWN long visit(Link *link) { return link->next->value; }
OWN void use_after_free() {
  Link *link = (Link *)opaque(malloc(sizeof(Link)));
  link->next = link;
  EITHER(free(link), (void)0);
  volatile long kept = visit(link);
  (void)kept;
}

OWN long sum(const char *data, long length) {
  long all = 0;
  for (long at = 0; at < length; at++) all += data[at];
  return all;
}
OWN void bus_error() {
  char name[] = "mapped-XXXXXX", other[] = "mapped-XXXXXX";
  int file = mkstemp(name);
  if (ftruncate(file, 8192)) exit(3);
  const char *data = (const char *)mmap(nullptr, 8192, PROT_READ, MAP_SHARED, file, 0);
#ifdef FOLLOWED
  int fresh = mkstemp(other);
  if (ftruncate(fresh, 100) || rename(other, name)) exit(3);
#else
  if (ftruncate(file, 100)) exit(3);
  (void)other;
#endif
  volatile long kept = sum(data, 8192);
  (void)kept;
  unlink(name);
}

OWN long rows_of(long size, long columns) { assert(columns > 0); return size / columns; }
OWN void assertion_failed() { long columns = opaque(0L); EITHER(, if (columns <= 0) return;) rows_of(12, columns); }

OWN int third(const std::vector<int> &all) { return all.at(2); }
OWN void uncaught_cpp_exception() { std::vector<int> all(2); EITHER(, if (all.size() < 3) return;) third(all); }

OWN void allocation_failed() { delete[] opaque(new char[opaque<size_t>(EITHER(1UL << 50, 1UL << 10))]); }

struct Base {
  virtual void step() = 0;
  std::thread worker;
  volatile bool started = false;
  // Joined only here, the thread runs on while the object is no Worker any more.
  virtual ~Base() { if (worker.joinable()) worker.join(); }
};
static volatile bool destroyed;
__attribute__((noinline)) void run(Base *base) { base->started = true; EITHER(while (!destroyed) {}, (void)0); base->step(); }
struct Late : Base { ~Late() override { destroyed = true; } };
struct Worker : Late {
  void step() override {}
  ~Worker() override { EITHER(, worker.join()); }
};
OWN void pure_virtual_call() {
  Base *worker = new Worker;
  worker->worker = std::thread(run, worker);
  delete opaque(worker);
}

OWN void forget() { std::thread other([] { pause(); }); EITHER(, other.detach()); }
OWN void abort_() { forget(); }

int main(int, char **words) {
#define RULE(name, function) if (!strcmp(words[1], name)) { function(); return 0; }
  RULE("null-dereference", null_dereference)
  RULE("invalid-read", invalid_read)
  RULE("invalid-write", invalid_write)
  RULE("write-to-readonly", write_to_readonly)
  RULE("bad-jump", bad_jump)
  RULE("misaligned-access", misaligned_access)
  RULE("integer-divide-by-zero", integer_divide_by_zero)
  RULE("floating-point-trap", floating_point_trap)
  RULE("deliberate-trap", deliberate_trap)
  RULE("illegal-instruction", illegal_instruction)
  RULE("stack-overflow-recursion", stack_overflow_recursion)
  RULE("stack-overflow-large-frame", stack_overflow_large_frame)
  RULE("stack-smash", stack_smash)
  RULE("buffer-overflow-fortify", buffer_overflow_fortify)
  RULE("heap-corruption", heap_corruption)
  RULE("double-free", double_free)
  RULE("heap-buffer-overflow", heap_buffer_overflow)
  RULE("use-after-free", use_after_free)
  RULE("bus-error", bus_error)
  RULE("assertion-failed", assertion_failed)
  RULE("uncaught-cpp-exception", uncaught_cpp_exception)
  RULE("allocation-failed", allocation_failed)
  RULE("pure-virtual-call", pure_virtual_call)
  RULE("abort", abort_)
  return 2;
}
