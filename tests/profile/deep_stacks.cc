// Programs of known depth: `deep_stacks [painted|busy] NAME...` runs each in a process of its own; with `busy`, each
// goes on with shallow calls for a second.
#include <alloca.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <functional>
#include <regex>
#include <stdexcept>
#include <string>

extern "C" void begin(int painted);
extern "C" void finish(const char *name);
extern "C" void reached(volatile const void *address);

#define CALL __attribute__((noinline, noclone)) static
#define PROBED __attribute__((noinline, noclone, optimize("stack-clash-protection"))) static

CALL int recursion(int n) {
  volatile char room[300];
  room[0] = n;
  reached(room);
  return n ? recursion(n - 1) + room[0] : 0;
}
CALL int narrow(int n) { volatile int kept = n; return n ? narrow(n - 1) + kept : 0; }
CALL int pong(int n);
CALL int ping(int n) { volatile char room[700]; room[0] = n; return n ? pong(n - 1) + room[0] : 0; }
CALL int pong(int n) { volatile char room[60]; room[0] = n; return n ? ping(n - 1) + room[0] : 0; }
CALL int variable_array(int n) { volatile char room[n]; memset((void *)room, 1, n); reached(room); return room[n / 2]; }
CALL int written_at_its_end(int n) { volatile char room[n]; room[0] = 1; reached(room); return room[0]; }
CALL int taken_by_alloca(int n) {
  volatile char *room = (volatile char *)alloca(n);
  for (int i = 0; i < n; i += 1024) room[i] = 1;
  reached(room);
  return room[n / 2];
}
PROBED int probed_array(int n) { volatile char room[n]; room[n - 1] = 1; reached(room); return room[n - 1]; }
PROBED int probed_frame(int n) { volatile char room[400000]; room[n] = 1; reached(room); return room[n]; }
CALL int large_frame(int n) { volatile char room[700000]; memset((void *)room, n, sizeof room); reached(room); return room[n]; }
CALL int inner_array(int n) { volatile char room[400000]; memset((void *)room, n, sizeof room); reached(room); return room[n]; }
CALL int outer_array(int n) { volatile char room[200000]; memset((void *)room, n, sizeof room); return inner_array(n) + room[n]; }

struct Matrix {
  double cells[96 * 64];
};
CALL Matrix sum(Matrix one, Matrix other) {
  for (int i = 0; i < 96 * 64; i++) one.cells[i] += other.cells[i];
  reached(&one);
  return one;
}
CALL double temporaries(int n) {
  Matrix a, b, c, d;
  for (int i = 0; i < 96 * 64; i++) a.cells[i] = b.cells[i] = c.cells[i] = d.cells[i] = i + n;
  return sum(sum(sum(a, b), c), d).cells[n];
}

CALL int throwing(int n) {
  volatile char room[200];
  room[0] = n;
  if (!n) throw std::runtime_error("deep enough");
  return throwing(n - 1) + room[0];
}
static jmp_buf back;
CALL int jumping(int n) { volatile char room[200]; room[0] = n; if (!n) longjmp(back, 1); return jumping(n - 1) + room[0]; }
CALL int leaving(int n) { volatile char room[200]; room[0] = n; if (!n) pthread_exit(0); return leaving(n - 1) + room[0]; }
CALL int by_function(int n, const std::function<int(int)> &again) { volatile char room[150]; room[0] = n; return n ? again(n - 1) + room[0] : 0; }

static int left_to_compare;
CALL int compared(const void *one, const void *other) {
  volatile char room[500];
  room[0] = 1;
  if (left_to_compare-- > 0) {
    int pair[2] = {2, 1};
    qsort(pair, 2, sizeof *pair, compared);
  }
  return *(const int *)one - *(const int *)other + room[0] - 1;
}
CALL int handled(int n) { volatile char room[250]; room[0] = n; return n ? handled(n - 1) + room[0] : 0; }
static void on_own_stack(int) { handled(1500); }
static void on_alternate_stack(int) { handled(700); }
CALL void caught(void (*handler)(int), int flags) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigaction(SIGUSR2, &action, 0);
  pthread_kill(pthread_self(), SIGUSR2);
}

static volatile int counted;
CALL void shallow(int times) { for (int i = 0; i < times; i++) { char text[64]; snprintf(text, sizeof text, "%d %g", i, i / 3.0); counted += text[0]; } }

static void work(const std::string &name) {
  if (name == "recursion") recursion(2000);
  if (name == "narrow") narrow(20000);
  if (name == "mutual") ping(1500);
  if (name == "vla") variable_array(300000);
  if (name == "vla-end") written_at_its_end(300000);
  if (name == "alloca") taken_by_alloca(500000);
  if (name == "probed-vla") probed_array(250000);
  if (name == "probed-frame") probed_frame(399999);
  if (name == "large-frame") large_frame(5);
  if (name == "two-frames") outer_array(5);
  if (name == "temporaries") temporaries(3);
  if (name == "throws") try { throwing(3000); } catch (const std::runtime_error &) {}
  if (name == "jumps" && !setjmp(back)) jumping(3000);
  if (name == "leaves") leaving(2500);
  if (name == "std-function") { std::function<int(int)> again = [&](int n) { return by_function(n, again); }; again(1500); }
  if (name == "qsort") { left_to_compare = 1000; int pair[2] = {2, 1}; qsort(pair, 2, sizeof *pair, compared); }
  if (name == "regex") std::regex_match(std::string(1500, 'a'), std::regex("(a|b)*c?"));
  if (name == "own-size") recursion(400);
  if (name == "small") recursion(200);
  if (name == "wide") recursion(80000);
  if (name == "own-memory") taken_by_alloca(100000);
  if (name == "handler") { caught(on_own_stack, 0); }
  if (name == "signal-stack") {
    static char memory[1 << 20];
    stack_t stack = {};
    stack.ss_sp = memory;
    stack.ss_size = sizeof memory;
    sigaltstack(&stack, 0);
    recursion(600);
    caught(on_alternate_stack, SA_ONSTACK);
    stack.ss_flags = SS_DISABLE;
    sigaltstack(&stack, 0);
  }
  if (name == "then-shallow") { recursion(5000); shallow(20000); }
  if (name == "stays" || name == "detached") recursion(900);
  if (name == "main-recursion") recursion(9000);
  if (name == "main-frame") large_frame(5);
}

static int painted, busy;
static volatile int finished;
static void at_its_end(void *name) { finish((const char *)name); }
static void *in_thread(void *argument) {
  const char *name = (const char *)argument;
  pthread_key_t key; // its destructor runs after the calls that pthread_exit leaves
  pthread_key_create(&key, at_its_end);
  if (!strcmp(name, "leaves")) pthread_setspecific(key, argument);
  if (strncmp(name, "main-", 5)) prctl(PR_SET_NAME, name);
  begin(painted);
  work(name);
  for (time_t until = time(0) + 2; busy && time(0) < until;) shallow(1000);
  finish(name);
  finished = 1;
  if (!strcmp(name, "stays")) pause();
  return 0;
}
static void once(const char *name) {
  pthread_attr_t how;
  pthread_attr_init(&how);
  if (!strncmp(name, "main-", 5)) {
    in_thread((void *)name);
    return;
  }
  if (!strcmp(name, "own-size")) pthread_attr_setstacksize(&how, 256 << 10);
  if (!strcmp(name, "small")) pthread_attr_setstacksize(&how, 128 << 10);
  if (!strcmp(name, "wide")) pthread_attr_setstacksize(&how, 64 << 20);
  if (!strcmp(name, "own-memory"))
    pthread_attr_setstack(&how, mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1 << 20);
  if (!strcmp(name, "detached")) pthread_attr_setdetachstate(&how, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  pthread_create(&thread, &how, in_thread, (void *)name);
  if (!strcmp(name, "stays") || !strcmp(name, "detached")) {
    while (!finished) usleep(1000);
    usleep(30000);
  }
  else pthread_join(thread, 0);
}

int main(int argc, char **argv) {
  painted = argc > 1 && !strcmp(argv[1], "painted");
  busy = argc > 1 && !strcmp(argv[1], "busy");
  int first = 1 + (painted || busy);
  if (argc == 1 + first) {
    once(argv[first]);
    return 0;
  }
  for (int i = first; i < argc; i++) {
    if (!fork()) execl("/proc/self/exe", argv[0], first == 2 ? argv[1] : argv[i], first == 2 ? argv[i] : 0, (char *)0);
    wait(0);
  }
  return 0;
}
