"""Both loops, the one in C and the one in Python, serve the same programs in the same way."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from harness import build
from supervised import LOOPS, children, named, python, record_of, run_and_record, started, until


@pytest.fixture(params=LOOPS, autouse=True)
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The loop that is in use; C where it was built, as it is wherever a compiler is."""
    name = str(request.param)
    monkeypatch.setenv("NECROPSY_LOOP", name)
    return name


def test_the_slow_loop_is_a_gap(loop: str, tmp_path: Path) -> None:
    _, record = run_and_record(["true"], tmp_path)
    assert [gap.part for gap in record.gaps if gap.part == "supervision"] == ["supervision"] * (loop == "python")


def test_processes_are_known_by_what_they_run(tmp_path: Path) -> None:
    script = "for i in 1 2 3; do /bin/sh -c 'exit 5'; done; /bin/true; (exit 7); exit 3"
    done, record = run_and_record(["/bin/sh", "-c", script], tmp_path)
    assert done.returncode == 3
    root, *others = record.processes
    assert root.exit is not None and root.exit.code == 3
    assert [one.exit.code for one in others if one.exit is not None] == [5, 5, 5, 0, 7]
    assert [one.command for one in others[:4]] == [("/bin/sh", "-c", "exit 5")] * 3 + [("/bin/true",)]
    assert {one.parent for one in others} == {root.pid}
    assert all(one.peak_rss and one.wall_s is not None for one in record.processes)


def test_threads_and_children_of_threads(tmp_path: Path) -> None:
    source = r"""
    #include <pthread.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static void *work(void *x) {
        for (int i = 0; i < 5; i++) { pid_t pid = fork(); if (!pid) _exit(4); waitpid(pid, 0, 0); }
        return x;
    }
    int main(void) {
        for (int round = 0; round < 20; round++) {
            pthread_t threads[8];
            for (int i = 0; i < 8; i++) pthread_create(&threads[i], 0, work, 0);
            for (int i = 0; i < 8; i++) pthread_join(threads[i], 0);
        }
        return 6;
    }
    """
    done, record = run_and_record([str(build(tmp_path, source))], tmp_path)
    assert done.returncode == 6
    assert len(record.processes) == 801
    assert all(one.exit is not None and one.exit.code in {4, 6} for one in record.processes)


CROWD = 400
"""More than the loop in C waits for with one call (``CROWD`` in csrc/state.h)."""


def test_a_crowd_of_threads_is_served_and_stopped(tmp_path: Path) -> None:
    """Births, ends, children and signals beside many threads that stand, then all of them are stopped at a death."""
    source = rf"""
    #include <pthread.h>
    #include <signal.h>
    #include <sys/wait.h>
    #include <unistd.h>
    enum {{ CROWD = {CROWD} }};
    static pthread_barrier_t all_there;
    static volatile int seen;
    static void note(int number) {{ seen += number == SIGUSR1; }}
    static void *stand(void *x) {{ pthread_barrier_wait(&all_there); for (;;) pause(); return x; }}
    static void *pass(void *x) {{ pid_t pid = fork(); if (!pid) _exit(4); waitpid(pid, 0, 0); return x; }}
    int main(void) {{
        pthread_t thread;
        pthread_barrier_init(&all_there, 0, CROWD + 1);
        for (int i = 0; i < CROWD; i++) pthread_create(&thread, 0, stand, 0);
        pthread_barrier_wait(&all_there);
        signal(SIGUSR1, note);
        for (int i = 0; i < 50; i++) {{
            pthread_create(&thread, 0, pass, 0);
            pthread_join(thread, 0);
            raise(SIGUSR1);
        }}
        if (seen == 50) *(volatile int *)16 = 1;
        return 1;
    }}
    """
    done, record = run_and_record([str(build(tmp_path, source))], tmp_path)
    assert done.returncode == -signal.SIGSEGV
    assert [one.exit.code for one in record.processes[1:] if one.exit is not None] == [4] * 50
    (crash,) = record.crashes
    assert crash.threads is not None and len(crash.threads) == CROWD + 1
    assert not [gap for gap in crash.gaps if "did not stop" in gap.why]


WRITE_BARRIER = r"""
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
static char *pages;
static int left = 500;
static void open_page(int number, siginfo_t *info, void *context) {
    mprotect((void *)((unsigned long)info->si_addr & ~4095UL), 4096, PROT_READ | PROT_WRITE);
    if (!--left) signal(SIGSEGV, SIG_DFL);
}
int main(void) {
    struct sigaction action = {.sa_sigaction = open_page, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, 0);
    pages = mmap(0, 501 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 501; i++) pages[i * 4096] = i;
    return 0;
}
"""


def test_a_fault_that_was_handled_before_and_kills_now(tmp_path: Path) -> None:
    """Whether it has a handler is not looked up each time; it is read all the same, and by its own registers."""
    done, record = run_and_record([str(build(tmp_path, WRITE_BARRIER, "-O0", "-g"))], tmp_path)
    assert done.returncode == -signal.SIGSEGV
    (crash,) = record.crashes
    assert crash.fault is not None and crash.fault.signal == "SIGSEGV" and crash.fault.address is not None
    assert crash.fault.access == "write"
    assert crash.crashed_thread is not None and crash.crashed_thread.frames
    assert crash.crashed_thread.frames[0].function == "main"


def test_a_handler_that_gives_up(tmp_path: Path) -> None:
    code = "import ctypes, faulthandler; faulthandler.enable(); ctypes.string_at(24)"
    done, record = run_and_record(python(code), tmp_path)
    assert done.returncode == -signal.SIGSEGV
    (crash,) = record.crashes
    assert crash.fault is not None and crash.fault.address == 24


HANDLERS = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
static const char *how;
/* Room for 20 signal frames: with AVX-512 each takes 3.5 KB, with AMX 11 KB. */
static char *page, other_stack[1 << 20];
static sigjmp_buf back;
static volatile int depth;
static int is(const char *what) { return !strcmp(how, what); }
static void handler(int number, siginfo_t *info, void *context) {
    depth++;
    if (is("barrier")) { mprotect(page, 4096, PROT_READ | PROT_WRITE); return; }
    if (is("jumps")) siglongjmp(back, 1);
    if (is("nested") && depth < 20) *(volatile int *)(4096 + depth) = 1;
    if (is("nested")) abort();
    if (is("hangs")) { sleep(2); close(open("stands", O_CREAT | O_RDWR, 0600)); } /* a second makes it one that hangs */
    if (is("hangs")) for (;;) pause();
    _exit(is("ends well") ? 0 : 21);
}
static void *fault(void *unused) {
    stack_t other = {.ss_sp = other_stack, .ss_size = sizeof other_stack};
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    if (is("other stack") || is("nested")) {
        sigaltstack(&other, 0);
        action.sa_flags |= SA_ONSTACK | SA_NODEFER;
    }
    sigaction(SIGSEGV, &action, 0);
    page = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int round = 0; is("barrier") && round < 100; round++) {
        alloca(16);
        page[round] = 1;
        mprotect(page, 4096, PROT_NONE);
    }
    if (is("barrier")) _exit(22);
    if (is("jumps") && sigsetjmp(back, 1)) exit(23);
    *(volatile int *)24 = 1;
    return unused;
}
int main(int count, char **words) {
    for (int at = 1; at < count; at++) {
        how = words[at];
        if (count > 2 && fork()) { wait(0); continue; }
        pthread_t thread;
        if (is("in a thread")) { pthread_create(&thread, 0, fault, 0); pthread_join(thread, 0); }
        fault(0);
    }
    return 0;
}
"""


def test_a_handler_that_ends_the_program(tmp_path: Path) -> None:
    """It is read where the handler still runs, and only there; of several faults by the first one."""
    ways = ["exits", "other stack", "in a thread", "nested", "ends well", "barrier", "jumps"]
    done, record = run_and_record([str(build(tmp_path, HANDLERS, "-O0", "-g", "-pthread")), *ways], tmp_path)
    assert done.returncode == 0
    assert [end.code for one in record.processes[1:] if (end := one.exit) is not None] == [21, 21, 21, None, 0, 22, 23]
    dead = [one.pid for one in record.processes[1:5]]
    assert [crash.pid for crash in record.crashes] == dead
    for crash in record.crashes:
        assert crash.fault is not None and (crash.fault.signal, crash.fault.address) == ("SIGSEGV", 24)
        assert crash.fault.handled_first
        assert crash.crashed_thread is not None and crash.crashed_thread.frames
        assert crash.crashed_thread.frames[0].function == "fault"
    assert [crash.in_handler.code for crash in record.crashes[:3] if crash.in_handler] == [21] * 3
    assert record.crashes[3].in_handler is None


def test_a_handler_that_does_not_come_back(tmp_path: Path) -> None:
    program = str(build(tmp_path, HANDLERS, "-O0", "-g", "-pthread"))
    done, record = run_and_record(
        [program, "hangs"], tmp_path, popen={"cwd": tmp_path}, timeout_s=1000, fault="time_is_up_at_a_mark"
    )
    assert done.returncode == 124
    (crash,) = record.crashes
    assert crash.fault is not None and (crash.fault.signal, crash.fault.address) == ("SIGSEGV", 24)
    assert crash.in_handler is not None and crash.in_handler.kind == "timeout"


def test_a_thread_that_executes_something_while_others_run(tmp_path: Path) -> None:
    code = """
import os, threading, time
for _ in range(5):
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
threading.Thread(target=lambda: os.execv("/bin/sh", ["sh", "-c", "exit 9"])).start()
time.sleep(60)
"""
    done, record = run_and_record(python(code), tmp_path)
    assert done.returncode == 9
    assert record.processes[0].command == ("sh", "-c", "exit 9")


def test_stopped_and_continued(tmp_path: Path) -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGSTOP); print('on', flush=True); os._exit(8)"
    keeper = (
        "import os, signal, subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', {code!r}])\n"
        "os.waitpid(child.pid, os.WUNTRACED); time.sleep(0.2); child.send_signal(signal.SIGCONT)\n"
        "sys.exit(child.wait())"
    )
    done, _ = run_and_record(python(keeper), tmp_path)
    assert (done.returncode, done.stdout) == (8, b"on\n")


def test_siblings_go_on_while_a_death_is_read(tmp_path: Path) -> None:
    """The dead child's reading never ends; its sibling starts threads and processes meanwhile, and counts them."""
    counter = tmp_path / "counter"
    code = f"""
import ctypes, os, subprocess, sys, threading, time
dying = os.fork()
if not dying:
    ctypes.string_at(8)
number = 0
while not os.path.exists({str(tmp_path / "stop")!r}):
    thread = threading.Thread(target=int); thread.start(); thread.join()
    subprocess.run(["/bin/true"], check=True)
    number += 1
    open({str(counter)!r}, "w").write(str(number))
assert os.WTERMSIG(os.waitpid(dying, 0)[1]) == 11
"""
    path = tmp_path / "record"
    with started(python(code), record=path, fault="slow_reading", popen={"stderr": subprocess.DEVNULL}) as front:
        tracer = named(front.pid, "necropsy-trace")
        named(tracer, "reading")
        before = int(until(counter.read_text, "it counts"))
        until(lambda: int(counter.read_text() or 0) > before + 20, "it goes on")
        assert "reading" in children(tracer).values()
        (tmp_path / "stop").touch()
        for pid, name in children(tracer).items():
            if name == "reading":
                os.kill(pid, signal.SIGKILL)
        assert front.wait(60) == 0
    (crash,) = record_of(path).crashes
    why = crash.gap("threads")
    assert crash.fault is not None and crash.fault.signal == "SIGSEGV"
    assert why is not None and "was killed by SIGKILL" in why.why


def test_thirty_die_at_once(tmp_path: Path) -> None:
    source = r"""
    #include <sys/wait.h>
    #include <unistd.h>
    int main(void) {
        int fds[2]; char c; pipe(fds);
        for (int i = 0; i < 30; i++)
            if (!fork()) { close(fds[1]); read(fds[0], &c, 1); *(volatile int *)8 = 1; }
        close(fds[1]);
        int status, died = 0;
        for (int i = 0; i < 30; i++) { wait(&status); died += WTERMSIG(status) == 11; }
        return died;
    }
    """
    done, record = run_and_record([str(build(tmp_path, source, "-static"))], tmp_path)
    assert done.returncode == 30
    assert len(record.crashes) == 30
    assert all(crash.crashed_thread is not None for crash in record.crashes)


COUNTING = r"""
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>
static volatile long *count;
static void *raises(void *unused) {
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &blocked, 0);
    while (*count < 10) {}
    raise(SIGSEGV);
    for (;;) pause();
}
int main(int count_of, char **words) {
    count = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, open(words[1], O_RDWR), 0);
    char begin;
    if (read(0, &begin, 1) != 1) return 1;
    pthread_t thread;
    pthread_create(&thread, 0, raises, 0);
    for (;;) {
        usleep(50);
        ++*count;
    }
}
"""
RELEASING = """
import os, signal, subprocess, sys, time
from pathlib import Path
from necropsy.capture.linux.stderr import log_source
from necropsy.capture.linux.supervise import ptrace
from necropsy.capture.linux.supervise.c_loop import open_loop
from necropsy.capture.linux.supervise.event_loop import Kind, go_on
from necropsy.capture.linux.supervise.shared_memory import Facts

class Silent:
    def started(self, entry): pass
    executed = finished = started

def counted():
    return int.from_bytes(counter.read_bytes()[:8], "little")

def awaited(*kinds):
    for _ in range(100_000):
        event = loop.next(10.0)
        if event.kind in kinds:
            return event
        assert event.kind is not Kind.NOTHING, "nothing came for ten seconds"
        go_on(loop, event)

signo, program, counter = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGUSR1})
wanted = int(sys.argv[4])
while wanted:
    counter.write_bytes(bytes(4096))
    child = subprocess.Popen([program, str(counter)], stdin=subprocess.PIPE)
    ptrace.seize(child.pid, ptrace.FOLLOW | ptrace.EXITKILL)
    loop, _ = open_loop(child.pid, front=os.getpid(), facts=Facts(), journal=Silent(), log=log_source.choose("off"))
    child.stdin.write(b"x")
    child.stdin.flush()
    fatal = awaited(Kind.FATAL)
    if not loop.hold(fatal.tid, stop=fatal.value):
        awaited(Kind.HELD)
    before, released = counted(), time.monotonic()
    loop.release(fatal.pid, fatal.tid, signo)
    if signo == fatal.value:
        assert awaited(Kind.ENDED).value == signo
        if time.monotonic() - released > 0.1:  # they go on after that, and a busy machine takes longer
            continue
        assert counted() == before
    else:
        while counted() == before:
            loop.next(0.02)
    child.kill()
    wanted -= 1
"""


@pytest.mark.parametrize(
    ("signo", "times"),
    [
        # They were held while it was read: as without a tracer, they do nothing after the signal that ends it.
        pytest.param(signal.SIGSEGV, 12, id="held until it has ended"),
        # The thread that gets this signal has blocked it, so the process lives on, with all its threads.
        pytest.param(signal.SIGTERM, 1, id="not held for long"),
    ],
)
def test_other_threads_at_a_signal_that_ends_a_process(signo: int, times: int, tmp_path: Path) -> None:
    program = build(tmp_path, COUNTING, "-O1")
    words = [*python(RELEASING), str(int(signo)), str(program), str(tmp_path / "counter"), str(times)]
    done = subprocess.run(words, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
