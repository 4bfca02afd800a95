"""Deaths at odd moments and in odd states: each is read, each ends as it would have, and no stack is made up."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from pathlib import Path

import pytest
from harness import build, compiler
from supervised import run_and_record

from necropsy.capture.linux.supervise.launch import RunRecord
from necropsy.model import Crash

ODD = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
static int is(const char *name) { const char *how = getenv("HOW"); return how && !strcmp(how, name); }
__attribute__((noinline)) void die_here(void) { *(volatile int *)8 = 1; }
__attribute__((constructor)) void early(void) { if (is("constructor")) die_here(); }
__attribute__((destructor)) void late(void) { if (is("destructor")) die_here(); }
static void at_the_end(void) { die_here(); }
static void in_handler(int signo) { die_here(); }
static void set_handler(int flags) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = in_handler;
    action.sa_flags = flags;
    sigaction(SIGUSR1, &action, 0);
    raise(SIGUSR1);
}
static void with_rsp(void *value) { __asm__ volatile("mov %0, %%rsp\n movl $1, 8" : : "r"(value)); }
static void push_at(void *value) { __asm__ volatile("mov %0, %%rsp\n push %%rax" : : "r"(value)); }
static void *thread_at_a_wrong_stack(void *value) { with_rsp(value); return 0; }
int main(void) {
    char *heap = malloc(1 << 20);
    char *other = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(other, 0x41, 1 << 20);
    if (is("atexit")) { atexit(at_the_end); exit(0); }
    if (is("handler")) set_handler(0);
    if (is("alternate")) {
        stack_t alternate = {.ss_sp = heap, .ss_size = 1 << 16};
        sigaltstack(&alternate, 0);
        set_handler(SA_ONSTACK);
    }
    if (is("rsp null")) with_rsp(0);
    if (is("rsp garbage")) with_rsp((void *)0xdeadbeefdeadbeef);
    if (is("rsp unmapped")) with_rsp((void *)0x10000);
    if (is("rsp last")) with_rsp((void *)0xfffffffffffffff8);
    if (is("rsp odd")) with_rsp(other + 12345);
    if (is("rsp other")) with_rsp(other + (1 << 19));
    if (is("rsp text")) with_rsp((void *)main);
    if (is("push null")) push_at(0);
    if (is("rsp in thread")) {
        pthread_t thread;
        pthread_create(&thread, 0, thread_at_a_wrong_stack, other + 4096);
        pthread_join(thread, 0);
    }
    if (is("rip null")) ((void (*)(void))0)();
    if (is("rip garbage")) ((void (*)(void))0xdeadbeefdeadbeef)();
    if (is("no descriptors")) { while (open("/dev/null", O_RDONLY) >= 0) {} die_here(); }
    if (is("no memory")) { struct rlimit none = {1 << 20, 1 << 20}; setrlimit(RLIMIT_AS, &none); die_here(); }
    if (is("no files")) { struct rlimit none = {0, 0}; setrlimit(RLIMIT_NOFILE, &none); die_here(); }
    if (is("no processes")) { struct rlimit none = {0, 0}; setrlimit(RLIMIT_NPROC, &none); die_here(); }
    if (is("no folder")) { mkdir("gone", 0700); chdir("gone"); rmdir("../gone"); die_here(); }
    return 3;
}
"""
NAMED = (
    "constructor",
    "destructor",
    "atexit",
    "handler",
    "alternate",
    "no descriptors",
    "no memory",
    "no files",
    "no processes",
    "no folder",
)
"""Here the stack is sound: the function that died and its caller are known."""
UNSOUND = {
    "rsp null": "die",
    "rsp garbage": "die",
    "rsp unmapped": "die",
    "rsp last": "die",
    "rsp odd": "die",
    "rsp other": "die",
    "rsp text": "die",
    "push null": "push",
    "rsp in thread": "die",
    "rip null": "jump",
    "rip garbage": "jump",
}


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("odd"), ODD, "-O0", "-g", "-fno-omit-frame-pointer")


def death(command: list[str], folder: Path, how: str = "") -> tuple[int, Crash, RunRecord]:
    popen = {"env": {**os.environ, "HOW": how}, "cwd": folder}
    done, record = run_and_record(command, folder, popen=popen, core="small")
    assert b"Traceback" not in done.stderr and b"necropsy:" not in done.stderr, done.stderr
    (crash,) = record.crashes
    return done.returncode, crash, record


def internal(crash: Crash) -> list[str]:
    """Gaps that tell of a defect of ours: an exception that nobody expected."""
    kinds = ("TypeError", "AttributeError", "KeyError", "IndexError", "ValueError", "AssertionError", "struct.error")
    return [gap.why for gap in crash.gaps if any(kind in gap.why for kind in kinds)]


@pytest.mark.parametrize("how", NAMED)
def test_an_odd_moment(odd: Path, how: str, tmp_path: Path) -> None:
    code, crash, _ = death([str(odd)], tmp_path, how)
    assert code == -signal.SIGSEGV
    assert crash.fault is not None
    assert (crash.fault.signal, crash.fault.code, crash.fault.address) == ("SIGSEGV", "SEGV_MAPERR", 8)
    assert crash.crashed_thread is not None and crash.crashed_thread.frames is not None
    names = [frame.function for frame in crash.crashed_thread.frames]
    assert names[0] == "die_here"
    callers = {"constructor": "early", "destructor": "late", "atexit": "at_the_end"}
    handled = how in {"handler", "alternate"}
    assert names[1] == ("in_handler" if handled else callers.get(how, "main"))
    if handled:
        assert "main" in names, "the interrupted stack goes on beyond the handler's"
    assert internal(crash) == []


@pytest.mark.parametrize("how", UNSOUND)
def test_a_wrong_stack_or_instruction_pointer(odd: Path, how: str, tmp_path: Path) -> None:
    code, crash, _ = death([str(odd)], tmp_path, how)
    assert code in {-signal.SIGSEGV, -signal.SIGBUS}
    assert crash.fault is not None and crash.registers is not None
    if UNSOUND[how] == "die":
        assert crash.fault.address == 8
    assert crash.crashed_thread is not None
    frames = crash.crashed_thread.frames or ()
    functions = [frame.function for frame in frames if frame.function]
    if UNSOUND[how] == "die":
        assert functions[0] == "with_rsp"
        # What lay around there was no stack of this thread: nothing of it may pass for a caller.
        known = {"with_rsp", "main", "thread_at_a_wrong_stack", "start_thread", "clone3", "__clone3", "_start"}
        assert {name for name in functions if not name.startswith("__libc_start")} <= known
    assert internal(crash) == []


def test_before_main_a_library_is_missing(tmp_path: Path) -> None:
    library = build(tmp_path, "int there(void) { return 3; }", "-shared", "-fPIC", name="there")
    needs = tmp_path / "needs.c"
    needs.write_text("int there(void); int main(void) { return there(); }")
    program = tmp_path / "needs"
    subprocess.run([compiler(), "-w", "-o", str(program), str(needs), str(library)], check=True)
    library.unlink()
    done, record = run_and_record([str(program)], tmp_path)
    assert done.returncode == 127
    assert b"libthere.so" in done.stderr
    assert record.crashes == ()


def test_before_main_in_an_ifunc(tmp_path: Path) -> None:
    source = """
    static int real(void) { return 3; }
    static void *choose(void) { *(volatile int *)8 = 1; return real; }
    int chosen(void) __attribute__((ifunc("choose")));
    int main(void) { return chosen(); }
    """
    program = build(tmp_path, source, "-O0", "-g")
    code, crash, _ = death([str(program)], tmp_path)
    assert code == -signal.SIGSEGV
    assert crash.crashed_thread is not None and crash.crashed_thread.frames
    # Two symbols for one address.
    assert crash.crashed_thread.frames[0].function in {"choose", "chosen"}
    assert internal(crash) == []


# ------------------------------------------------------------ modules that are not what they seem

CALLS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int argc, char **argv) {
    char path[64];
    const char *how = argv[1], *library = argv[2];
    if (!strcmp(how, "memfd")) {
        static char bytes[1 << 20];
        int from = open(library, O_RDONLY), to = memfd_create("module", 0);
        if (write(to, bytes, read(from, bytes, sizeof bytes)) <= 0) return 4;
        snprintf(path, sizeof path, "/proc/self/fd/%d", to);
        library = path;
    }
    void *handle = dlopen(library, RTLD_NOW);
    if (!handle) { fprintf(stderr, "%s\n", dlerror()); return 5; }
    void (*in_library)(void) = dlsym(handle, "in_library");
    if (!strcmp(how, "deleted")) unlink(library);
    if (!strcmp(how, "replaced")) rename(argv[3], library);
    if (!strcmp(how, "no longer a file")) { unlink(library); symlink(library, library); }
    in_library();
    return 3;
}
"""
LIBRARY = '__attribute__((visibility("default"))) void in_library(void) { *(volatile int *)8 = 1; }'


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("calls"), CALLS, "-O0", "-g")


@pytest.mark.parametrize("how", ["memfd", "deleted", "replaced", "replaced by another", "no longer a file"])
def test_a_module_that_is_not_there_any_more(calls: Path, how: str, tmp_path: Path) -> None:
    library = build(tmp_path, LIBRARY, "-shared", "-fPIC", "-O0", "-fno-omit-frame-pointer", name="module")
    other = tmp_path / "other"
    other.write_bytes(random.Random(1).randbytes(20_000))
    if how == "replaced by another":
        # A library again, in which quite another function lies at that place.
        wrong = "\n".join(f"void wrong_{n}(void) {{ }}" for n in range(2000))
        other = build(tmp_path, wrong, "-shared", "-fPIC", name="wrong")
    code, crash, _ = death([str(calls), how.removesuffix(" by another"), str(library), str(other)], tmp_path)
    assert code == -signal.SIGSEGV
    assert crash.crashed_thread is not None and crash.crashed_thread.frames
    inner, outer = crash.crashed_thread.frames[:2]
    assert inner.function in {"in_library", None}, "a name from another file would be a lie"
    assert inner.module is not None and ("module" in inner.module)
    assert outer.function == "main"
    assert internal(crash) == []


MAPS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
int main(int argc, char **argv) {
    static unsigned long fake[4096];
    int used = 0;
    for (int i = 1; i < argc; i++) {
        struct stat found;
        int file = open(argv[i], O_RDONLY);
        fstat(file, &found);
        if (argv[i][0] == '+') continue;
        char *at = mmap(0, found.st_size, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
        if (at == MAP_FAILED) continue;
        for (int n = 0; n < 4; n++) { fake[used] = (unsigned long)&fake[used + 2]; fake[used + 1] = (unsigned long)at + 0x1000 + n * 16; used += 2; }
    }
    __asm__ volatile("mov %0, %%rbp\n mov %0, %%rsp\n movl $1, 8" : : "r"(fake));
    return 3;
}
"""


def mutated(original: bytes, rng: random.Random) -> bytes:
    """The library with a header, a table or a section that lies."""
    data = bytearray(original)
    how = rng.randrange(6)
    if how == 0:  # any field of the ELF header but the magic
        for _ in range(3):
            data[rng.randrange(4, 64)] = rng.choice((0, 1, 0x7F, 0xFF, rng.randrange(256)))
    elif how == 1:  # a program header
        at = 64 + 56 * rng.randrange(8) + 8 * rng.randrange(7)
        data[at : at + 8] = rng.choice((2**64 - 1, 2**63, 2**40, 1, 0, len(data))).to_bytes(8, "little")
    elif how == 2:  # a section header
        table = int.from_bytes(data[40:48], "little")
        at = min(table + 64 * rng.randrange(20) + 8 * rng.randrange(8), len(data) - 8)
        data[at : at + 8] = rng.choice((2**64 - 1, 2**63, 2**40, 1, 0, len(data))).to_bytes(8, "little")
    elif how == 3:  # cut off
        del data[rng.randrange(4096, len(data)) :]
    elif how == 4:  # spoiled anywhere
        for _ in range(200):
            data[rng.randrange(64, len(data))] = rng.randrange(256)
    else:  # the counts of both tables
        data[56:64] = rng.randbytes(8)
    return bytes(data)


@pytest.mark.parametrize("seed", [2, 3, 4])
def test_modules_with_lying_headers(seed: int, tmp_path: Path) -> None:
    """Fifty files whose headers lie are mapped, and return addresses into all of them lie on the stack."""
    rng = random.Random(seed)
    original = build(tmp_path, LIBRARY, "-shared", "-fPIC", "-g", name="sound").read_bytes()
    files = []
    for number in range(50):
        path = tmp_path / f"liblying{number}.so"
        path.write_bytes(mutated(original, rng))
        files.append(str(path))
    program = build(tmp_path, MAPS, "-O0", "-g", "-fno-omit-frame-pointer")
    code, crash, _ = death([str(program), *files], tmp_path)
    assert code == -signal.SIGSEGV
    assert crash.fault is not None and crash.fault.address == 8
    assert crash.modules is not None and sum("liblying" in module.path for module in crash.modules) >= 45
    assert crash.crashed_thread is not None and crash.crashed_thread.frames
    assert crash.crashed_thread.frames[0].function == "main"
    assert internal(crash) == []


def test_libraries_that_the_loader_takes_although_their_sections_lie(calls: Path, tmp_path: Path) -> None:
    library = build(tmp_path, LIBRARY, "-shared", "-fPIC", "-O0", "-g", name="module")
    data = bytearray(library.read_bytes())
    table = int.from_bytes(data[40:48], "little")
    for at in range(table + 64, len(data) - 8, 8):
        data[at : at + 8] = (2**64 - 1 - at).to_bytes(8, "little")
    library.write_bytes(data)
    code, crash, _ = death([str(calls), "as it is", str(library)], tmp_path)
    assert code == -signal.SIGSEGV
    assert crash.crashed_thread is not None and crash.crashed_thread.frames
    assert crash.crashed_thread.frames[0].module is not None
    assert "libmodule" in crash.crashed_thread.frames[0].module
    assert internal(crash) == []


# ------------------------------------------------------------ gone while it is read


def test_the_process_vanishes_while_it_is_read(tmp_path: Path) -> None:
    """Forty processes crash, each killed a little later than the one before it: before, during and after the reading."""
    source = r"""
    #include <signal.h>
    #include <sys/wait.h>
    #include <unistd.h>
    int main(void) {
        int dies[2];
        char now;
        if (pipe(dies)) return 5;
        for (int i = 0; i < 40; i++) {
            pid_t pid = fork();
            if (!pid) { volatile char deep[65536]; deep[0] = 1; write(dies[1], "x", 1); *(volatile int *)8 = deep[0]; }
            if (read(dies[0], &now, 1) != 1) return 6;
            usleep(i * 4000);
            kill(pid, SIGKILL);
            int status;
            if (waitpid(pid, &status, 0) != pid) return 1;
            if (!WIFSIGNALED(status)) return 2;
            if (WTERMSIG(status) != SIGKILL && WTERMSIG(status) != SIGSEGV) return 4;
        }
        return 3;
    }
    """
    done, record = run_and_record([str(build(tmp_path, source))], tmp_path, core="small")
    assert (done.returncode, done.stderr) == (3, b"")
    # Killed by its parent before its own fault, one is no death of its own but follows an earlier one.
    notes = [gap.why.split()[0] for crash in record.crashes for gap in crash.gaps if " further process" in gap.why]
    assert len(record.crashes) + sum(map(int, notes)) == 40
    ends = [crash.exit.signal for crash in record.crashes if crash.exit]
    assert "SIGKILL" in ends
    for crash in record.crashes:
        # What was seen of a fault is told only where the fault is what ended it.
        assert crash.fault is not None and crash.exit is not None and crash.fault.signal == crash.exit.signal
        assert internal(crash) == []
    assert record.gaps == ()


def test_the_command_itself_vanishes_while_it_is_read(tmp_path: Path) -> None:
    """Its own child kills it in the middle; the status is the kill's."""
    source = r"""
    #include <signal.h>
    #include <stdlib.h>
    #include <unistd.h>
    int main(int argc, char **argv) {
        pid_t pid = getpid();
        if (!fork()) { usleep(atoi(argv[1])); kill(pid, SIGKILL); _exit(0); }
        *(volatile int *)8 = 1;
    }
    """
    program = str(build(tmp_path, source))
    ends = []
    for delay in (500, 5_000, 15_000, 30_000, 60_000, 120_000):
        done, record = run_and_record([program, str(delay)], tmp_path)
        ends.append(done.returncode)
        assert done.returncode in {-signal.SIGKILL, -signal.SIGSEGV}
        (crash,) = record.crashes
        assert crash.exit is not None and crash.exit.signal == signal.Signals(-done.returncode).name
        assert internal(crash) == []
    assert -signal.SIGKILL in ends


def test_what_is_built_here_runs_without_us(odd: Path) -> None:
    """Each way to die is one without the supervisor too; else the tests above would show nothing."""
    for how in ("constructor", "destructor", "rsp null", "no memory"):
        done = subprocess.run([str(odd)], env={**os.environ, "HOW": how}, check=False)
        assert done.returncode == -signal.SIGSEGV
