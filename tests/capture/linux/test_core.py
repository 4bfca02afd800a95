"""Cores, ours and the kernel's: read back by us, by gdb and by drgn, and compared with the living process."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import io
import os
import random
import re
import resource
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from harness import SHARED, build, compiler, dying
from python_program import PROGRAM
from supervised import CORES_HERE

import needs
from necropsy.capture import open_core
from necropsy.capture.linux.inspect import crash_builder
from necropsy.errors import InputError, NoInputError
from necropsy.model import Crash
from necropsy.rules.jit import generated_code
from writers import core as written
from writers import elf

SOURCE = """
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static volatile int ready;
__attribute__((noinline)) void wait_here(void) { ready = syscall(SYS_gettid); for (;;) pause(); }
/* In pause(2), whose number is 34: two runs are compared. */
static int pauses(int tid) {
  char path[64];
  int number = -1;
  snprintf(path, sizeof path, "/proc/self/task/%d/syscall", tid);
  FILE *file = fopen(path, "r");
  if (fscanf(file, "%d", &number) != 1) number = -1;
  fclose(file);
  return number == 34;
}
static void *waiting(void *arg) { wait_here(); return arg; }
__attribute__((noinline)) int fall(int depth) {
  volatile char room[48]; room[0] = depth;
  if (depth == 0) *(volatile int *)0x18 = 1;
  return fall(depth - 1) + room[0];
}
int main(int argc, char **argv) {
  pthread_t thread;
  pthread_create(&thread, 0, waiting, 0);
  while (!ready || !pauses(ready)) usleep(1000);
  char *heap = malloc(1 << 16), copied[64] = "", part[64] = "";
  strcpy(heap, "something that lies on the heap only");
  strcpy(heap + 100, getenv("HF_TOKEN") ? getenv("HF_TOKEN") : "");
  if (argc > 3) { strcpy(copied, argv[3]); memcpy(part + 3, argv[3] + 2, 9); }
  return fall(atoi(argv[1]));
}
"""
SECRET = "hunter2-and-more"


@pytest.fixture(scope="module")
def crasher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("core"), SOURCE, "-g", "-O0", "-fno-omit-frame-pointer")


def of_a_death(crasher: Path, folder: Path, *arguments: str, full: bool = False) -> tuple[Crash, Path]:
    """What the living process showed, and the core that was taken of it."""
    packed = io.BytesIO()
    env = {**os.environ, "HF_TOKEN": SECRET, "MY_SETTING": "also not for others", "OMP_NUM_THREADS": "3"}
    env["PWD"] = str(crasher.parent)
    with dying([crasher, *arguments], env=env) as death:
        crash = crash_builder.capture(dataclasses.replace(death, core=packed, full_memory=full))
    path = folder / "small.core"
    path.write_bytes(gzip.decompress(packed.getvalue()))
    return crash, path


def functions(crash: Crash) -> list[list[str | None]]:
    return [[frame.function for frame in thread.frames or ()] for thread in crash.threads or ()]


def test_our_core_shows_what_the_living_process_showed(crasher: Path, tmp_path: Path) -> None:
    alive, path = of_a_death(crasher, tmp_path, "300")
    assert alive.gap("core") is None
    dead = open_core.read(path)
    assert alive.crashed_thread is not None
    assert alive.crashed_thread.frames_total is not None
    assert alive.crashed_thread.frames_total > 300
    assert functions(dead) == functions(alive)
    assert (dead.fault, dead.instruction, dead.registers) == (alive.fault, alive.instruction, alive.registers)
    assert dead.pid == alive.pid
    assert dead.exit is not None
    assert dead.exit.signal == "SIGSEGV"
    for before, after in zip(alive.threads or (), dead.threads or (), strict=True):
        assert (after.tid, after.name, after.stack, after.folds, after.complete) == (
            before.tid,
            before.name,
            before.stack,
            before.folds,
            before.complete,
        )
    assert dead.environment is not None
    assert alive.environment is not None
    assert dead.environment.variables == alive.environment.variables
    assert dead.environment.limits == alive.environment.limits
    assert dead.gap("python") is not None


@needs.command("gdb")
def test_gdb_shows_the_same_stacks_and_the_libraries(crasher: Path, tmp_path: Path) -> None:
    alive, path = of_a_death(crasher, tmp_path, "20")
    asked = [
        "set backtrace past-main on",
        "set backtrace past-entry on",
        "info sharedlibrary",
        "info threads",
        "thread apply all bt",
        "p $_siginfo.si_signo",
    ]
    command = ["gdb", "-nx", "-batch", *(word for one in asked for word in ("-ex", one)), str(crasher), str(path)]
    out = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert "libc.so.6" in out
    assert "$1 = 11" in out
    assert re.search(r"^\* 1 .*fall \(depth=0\)", out, re.MULTILINE)
    first = out[out.rindex("Thread 1 ") :]
    shown = re.findall(r"^#\d+ +(?:0x[0-9a-f]+ in )?(\S+) \(", first, re.MULTILINE)
    assert shown[:21] == ["fall"] * 21
    assert "main" in shown
    other = out[out.index("Thread 2 ", out.index("thread apply") if "thread apply" in out else 0) :]
    assert "wait_here" in other
    # The C library names its static functions only where its debug symbols are installed, and gdb by their own names.
    ours = [name for name in functions(alive)[0] if name in {"fall", "main", "_start"}]
    assert [name for name in shown if name in set(ours)] == ours
    assert len(shown) == len(functions(alive)[0])


@needs.package("drgn")
def test_drgn_opens_it_without_being_told_where_things_are(crasher: Path, tmp_path: Path) -> None:
    import drgn

    _, path = of_a_death(crasher, tmp_path, "20")
    program = drgn.Program()
    program.set_core_dump(str(path))
    with contextlib.suppress(drgn.MissingDebugInfoError):  # of libraries that were installed without it
        program.load_default_debug_info()
    stacks = [[frame.name for frame in thread.stack_trace()] for thread in program.threads()]
    assert [name for stack in stacks for name in stack if name == "fall"] == ["fall"] * 21
    assert any("wait_here" in stack for stack in stacks)


def test_nobodys_secrets_and_no_heap_are_in_it(crasher: Path, tmp_path: Path) -> None:
    _, path = of_a_death(crasher, tmp_path, "5", "--api-key", SECRET, f"--password={SECRET}")
    data = path.read_bytes()
    assert SECRET.encode() not in data, "not even where the program copied it to, or where a register was saved"
    assert SECRET[2:11].encode() not in data
    assert b"also not for others" not in data
    assert str(crasher).encode() in data, "a path is no secret, wherever the working directory was"
    assert b"something that lies on the heap only" not in data
    assert b"OMP_NUM_THREADS=3\0" in data
    assert b"MY_SETTING=" in data  # that it was set is no secret


def test_with_full_memory_the_heap_is_in_it(crasher: Path, tmp_path: Path) -> None:
    alive, path = of_a_death(crasher, tmp_path, "5", full=True)
    data = path.read_bytes()
    assert b"something that lies on the heap only" in data
    assert SECRET.encode() not in data
    assert functions(open_core.read(path)) == functions(alive)


def test_a_deep_stack_is_kept_whole_in_a_megabyte(crasher: Path, tmp_path: Path) -> None:
    packed = io.BytesIO()
    with dying([crasher, "1000000"]) as death:
        alive = crash_builder.capture(dataclasses.replace(death, core=packed))
    path = tmp_path / "deep.core.gz"
    path.write_bytes(packed.getvalue())
    dead = open_core.read(path)
    assert alive.crashed_thread is not None
    assert dead.crashed_thread is not None
    assert alive.crashed_thread.frames_total is not None
    assert alive.crashed_thread.frames_total > 50_000
    assert dead.crashed_thread.frames_total == alive.crashed_thread.frames_total
    assert dead.crashed_thread.stack == alive.crashed_thread.stack
    assert path.stat().st_size < 2 << 20


@pytest.mark.parametrize(
    "name", ["core", "core.4711", "core-python3-4711", "python3.core", "python3.core.4711", "vgcore.4711"]
)
def test_a_core_is_found_by_its_name(crasher: Path, tmp_path: Path, name: str) -> None:
    path = of_a_death(crasher, tmp_path, "3")[1].rename(tmp_path / name)
    later = path.stat().st_mtime + 10_000_000
    os.utime(path, (later, later))  # the system may keep newer ones
    assert open_core.newest(tmp_path) == path
    path.rename(tmp_path / "notes.txt")
    assert open_core.newest(tmp_path) not in {path, tmp_path / "notes.txt"}


# ---------------------------------------------------------------- the kernel's


def of_the_kernel(command: list[str], folder: Path) -> Path:
    def allow() -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    subprocess.run(command, cwd=folder, preexec_fn=allow, check=False, capture_output=True, timeout=60)
    found = [one for one in folder.iterdir() if one.name.startswith("core")]
    assert found, "the kernel left no core"
    return found[0]


@CORES_HERE
def test_the_kernels_core_is_read_as_the_living_process(crasher: Path, tmp_path: Path) -> None:
    alive, _ = of_a_death(crasher, tmp_path, "300")
    path = of_the_kernel([str(crasher), "300"], tmp_path)
    dead = open_core.read(path)
    assert functions(dead) == functions(alive)
    assert dead.fault is not None
    assert alive.fault is not None
    assert (dead.fault.code, dead.fault.address, dead.fault.access) == ("SEGV_MAPERR", 0x18, "write")
    assert dead.environment is not None
    assert dead.environment.executable == str(crasher)
    assert open_core.is_core(path)
    assert open_core.newest(tmp_path) == path


def python_stacks(crash: Crash) -> list[list[tuple[str | None, str | None, int | None, int | None]]]:
    return [
        [(one.function, one.source, one.line, one.evaluated_by) for one in thread.python or ()]
        for thread in crash.threads or ()
    ]


@pytest.mark.skipif(not (3, 10) <= sys.version_info < (3, 14), reason="the layouts of other versions are not known")
@CORES_HERE
def test_python_stacks_are_read_from_a_core_as_py_spy_reads_them(tmp_path: Path) -> None:
    script = tmp_path / "skript.py"
    script.write_text(PROGRAM)
    with dying([sys.executable, str(script)]) as death:
        alive = crash_builder.capture(death)
    dead = open_core.read(of_the_kernel([sys.executable, str(script)], tmp_path))
    assert dead.gap("python") is None
    assert python_stacks(dead) == python_stacks(alive)
    first = python_stacks(dead)[0]
    assert [one[0] for one in first][-1] == "<module>"
    assert "名前" in [one[0] for one in first]
    assert any(stack and stack[0][0] == "waiting" for stack in python_stacks(dead))


@CORES_HERE
def test_a_core_of_a_python_program_is_read(tmp_path: Path) -> None:
    dead = open_core.read(of_the_kernel([sys.executable, "-c", "import ctypes; ctypes.string_at(1)"], tmp_path))
    assert dead.environment is not None
    assert dead.environment.python is not None
    assert dead.environment.python.startswith(".".join(map(str, sys.version_info[:2])))
    assert "PyEval_EvalCode" in functions(dead)[0]
    assert (dead.gap("python") is None) is ((3, 10) <= sys.version_info < (3, 14))


@CORES_HERE
def test_a_core_that_was_cut_off_says_so(crasher: Path, tmp_path: Path) -> None:
    path = of_the_kernel([str(crasher), "30"], tmp_path)
    whole = path.read_bytes()
    for share in (0.05, 0.3, 0.6, 0.9, 0.99):
        cut = tmp_path / "cut"
        cut.write_bytes(whole[: int(len(whole) * share)])
        try:
            dead = open_core.read(cut)
        except InputError as error:
            assert "cut off" in str(error) or "ends before" in str(error)  # noqa: PT017 - either is right
        else:
            gap = dead.gap("process")
            assert gap is not None
            assert "cut off" in gap.why


@CORES_HERE
def test_code_of_files_whose_names_were_cut_off_is_not_said_to_be_made_at_run_time(
    crasher: Path, tmp_path: Path
) -> None:
    whole = of_the_kernel([str(crasher), "30"], tmp_path).read_bytes()
    names = whole.index(b"ELIFCORE\0") - 8  # the note NT_FILE: sizes of its name and content, its type, its name
    cut = tmp_path / "cut"
    cut.write_bytes(whole[:names])
    dead = open_core.read(cut)
    assert dead.crashed_thread is not None and dead.crashed_thread.frames
    assert [frame.mapping for frame in dead.crashed_thread.frames] == [None] * len(dead.crashed_thread.frames)
    assert generated_code(dead) == ()


@CORES_HERE
def test_a_library_that_was_replaced_lends_no_names(tmp_path: Path) -> None:
    library = build(tmp_path, "int fall(void) { return *(volatile int *)0x18; }", *SHARED, name="one")
    code = f"import ctypes; ctypes.CDLL({str(library)!r}).fall()"
    path = of_the_kernel([sys.executable, "-c", code], tmp_path)
    before = open_core.read(path)
    assert functions(before)[0][0] == "fall"
    assert before.gap("modules") is None
    (tmp_path / "one.c").write_text("int other(void) { return 1; } int wrong(void) { return *(volatile int *)0x18; }")
    command = [compiler(), "-w", *SHARED, "-o", str(library) + ".new", str(tmp_path / "one.c")]
    subprocess.run(command, check=True, timeout=60)
    Path(str(library) + ".new").replace(library)
    after = open_core.read(path)
    gap = after.gap("modules")
    assert gap is not None
    assert str(library) in gap.why
    assert functions(after)[0][0] is None
    library.unlink()
    assert open_core.read(path).gap("modules") is not None


def packer(*words: str) -> object:
    return pytest.param(words, id=words[0], marks=needs.command(words[0]))


@pytest.mark.parametrize("tool", [packer("gzip", "-c"), packer("xz", "-0c"), packer("zstd", "-qc")])
def test_packed_cores_are_unpacked(crasher: Path, tmp_path: Path, tool: tuple[str, ...]) -> None:
    alive, path = of_a_death(crasher, tmp_path, "10")
    packed = tmp_path / "packed"
    packed.write_bytes(subprocess.run([*tool, str(path)], capture_output=True, check=True, timeout=60).stdout)
    assert open_core.is_core(packed)
    assert functions(open_core.read(packed)) == functions(alive)
    packed.write_bytes(packed.read_bytes()[:60])
    with pytest.raises(InputError):
        open_core.read(packed)


def test_what_apport_keeps_is_opened(crasher: Path, tmp_path: Path) -> None:
    import base64

    alive, path = of_a_death(crasher, tmp_path, "10")
    stream = gzip.compress(path.read_bytes())
    lines = [base64.b64encode(stream[at : at + 3000]) for at in range(0, len(stream), 3000)]
    report = tmp_path / "_usr_bin_x.1000.crash"
    report.write_bytes(b"ProblemType: Crash\nCoreDump: base64\n " + b"\n ".join(lines) + b"\nDate: today\n")
    assert open_core.is_core(report)
    assert functions(open_core.read(report)) == functions(alive)


# ---------------------------------------------------------------- hostile ones


def test_what_is_no_core_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoInputError):
        open_core.read(tmp_path / "none")
    with pytest.raises(NoInputError):
        open_core.read(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NoInputError):
        open_core.read(tmp_path / "pipe")
    for data in (b"", b"hello", b"\x1f\x8b" + bytes(30), b"\xfd7zXZ\0" + bytes(30), b"\x28\xb5\x2f\xfd" + bytes(30)):
        (tmp_path / "file").write_bytes(data)
        assert not open_core.is_core(tmp_path / "file")
        with pytest.raises(InputError):
            open_core.read(tmp_path / "file")
    assert not open_core.is_core(tmp_path / "pipe")
    assert not open_core.is_core(Path(sys.executable))


def test_a_core_may_name_any_file_and_claim_any_size(tmp_path: Path) -> None:
    """Neither a pipe without a writer nor the kernel's own files are opened, and no claim costs memory or time."""
    os.mkfifo(tmp_path / "pipe")
    library = tmp_path / "lib.so"
    library.write_bytes(elf.library([("f", 0x100, 16)], build_id=b"a" * 20))
    names = [str(tmp_path / "pipe"), "/dev/zero", "/proc/kmsg", "/proc/self/mem", str(library), "../x", "", "/x" * 3000]
    mapped = [(0x10000 * (n + 1), 0x10000 * (n + 1) + 0x4000, 0, name) for n, name in enumerate(names)]
    head = elf.library(build_id=b"b" * 20)
    stack = 0x7FF000000000
    regs = written.registers(rip=0x10100, rsp=stack + 8, rbp=stack + 16, fs_base=stack + 0x800)
    data = written.core(
        [
            written.status(5, 11, regs),
            written.process(5, b"x", b""),
            written.siginfo(11, 1, stack - 8),
            written.auxv(
                phdr=0x10040, phent=56, phnum=4, entry=0x10100, random=stack + 8, execfn=stack + 64, vdso=0x90000
            ),
            written.files(mapped),
        ],
        [
            *((low, 0x4000, 5, head) for low, *_ in mapped),
            (0x90000, 0x2000, 5, b"\x7fELF" + bytes(range(256)) * 8),
            (stack, 1 << 60, 6, struct.pack("<QQ", stack, 0x10105) * 200),
        ],
    )
    path = tmp_path / "core"
    path.write_bytes(data)
    started = time.monotonic()
    crash = open_core.read(path, budget_s=5)
    assert crash.fault is not None
    gap = crash.gap("modules")
    assert gap is not None
    assert "pipe" in gap.why
    assert time.monotonic() - started < 60, "it was not to hang"


def test_damaged_cores_are_read_or_refused(crasher: Path, tmp_path: Path) -> None:
    _, path = of_a_death(crasher, tmp_path, "50")
    whole = path.read_bytes()
    start, size = struct.unpack_from("<Q", whole, 72)[0], struct.unpack_from("<Q", whole, 96)[0]
    chosen = random.Random(20261121)
    values = (0, 1, (1 << 64) - 1, 1 << 63, (1 << 63) - 1, 0x7FFFFFFFF000, len(whole))
    damaged = tmp_path / "damaged"
    read = 0
    for _ in range(120):
        data = bytearray(whole)
        for _ in range(chosen.choice((1, 3, 20))):
            at = chosen.choice((chosen.randrange(64, start), chosen.randrange(start, start + size))) & ~7
            struct.pack_into("<Q", data, at, chosen.choice((*values, chosen.getrandbits(64))))
        damaged.write_bytes(data[: chosen.choice((len(data), chosen.randrange(1, len(data))))])
        try:
            crash = open_core.read(damaged, budget_s=5)
        except InputError as error:
            assert "\n" not in str(error)  # noqa: PT017 - the other outcome is a crash
        else:
            read += crash.threads is not None
    assert read > 20
