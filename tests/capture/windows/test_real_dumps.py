"""Real minidumps of Windows programs that die under wine, written by MiniDumpWriteDump and read back on Linux."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import wine
from crashers.windows import build
from necropsy.capture import open_minidump
from necropsy.formats.minidump import parse
from necropsy.model import Crash

pytestmark = wine.needed


def died(*words: str, kind: int = wine.SMALL_DUMP, first: tuple[int, ...] = (0xC00000FD,)) -> Crash:
    """What the dump of a crasher shows."""
    folder = build.programs()
    crash = open_minidump.read(wine.dump(folder / "crash.exe", *words, kind=kind, first=first), images=(folder,))
    failed = [gap for gap in crash.gaps if "Error: " in gap.why]
    assert not failed, failed
    return crash


def functions(crash: Crash) -> list[str | None]:
    thread = crash.crashed_thread
    assert thread is not None and thread.frames is not None
    return [frame.function for frame in thread.frames]


def test_a_violation() -> None:
    crash = died("null_write")
    assert crash.fault is not None and crash.exit is not None and crash.exit.ntstatus is not None
    assert (crash.fault.access, crash.exit.ntstatus.value) == ("write", "0xC0000005")
    assert functions(crash)[0] == "null_write"
    thread = crash.crashed_thread
    assert thread is not None and thread.complete and thread.stack is not None and thread.stack.is_main
    assert crash.instruction is not None and crash.instruction.text is not None
    assert crash.environment is not None and crash.environment.platform is not None
    assert crash.environment.platform.startswith("Windows ")
    assert (crash.environment.executable or "").endswith("\\crash.exe")


def test_a_stack_that_is_used_up() -> None:
    crash = died("recursion")
    thread = crash.crashed_thread
    assert thread is not None and thread.stack is not None
    assert thread.stack.guard_hit is True
    # The header of the executable says how much it asks for, and the fault lies at the end of that.
    assert crash.stack_reserve is not None and thread.stack.size == -(-crash.stack_reserve // 65536) * 65536
    assert thread.folds and thread.folds[0].times > 1000
    assert thread.frames_total is not None and thread.frames_total > 1000


def test_all_memory_tells_the_bounds_of_each_stack() -> None:
    crash = died("beside_sleepers", kind=wine.FULL_DUMP)
    assert crash.threads is not None and len(crash.threads) > 1
    for thread in crash.threads:
        assert thread.stack is not None and thread.stack.low is not None and thread.stack.high is not None
        assert thread.stack.pointer is not None and thread.stack.low < thread.stack.pointer < thread.stack.high
        assert thread.stack.size == thread.stack.high - thread.stack.low
    assert crash.environment is not None and crash.environment.variables is not None
    assert not [name for name in crash.environment.variables if name in {"PATH", "USERNAME"}]


def test_microsofts_cpp_exception() -> None:
    crash = died("throw_as_msvc", kind=wine.FULL_DUMP)
    assert crash.cpp_exception is not None
    assert (crash.cpp_exception.type, crash.cpp_exception.what) == ("std::runtime_error", "bad shape [7]")


def test_the_exception_that_ended_in_a_fast_fail() -> None:
    crash = died("terminate_as_msvc", kind=wine.FULL_DUMP)
    assert crash.exit is not None and crash.exit.ntstatus is not None and crash.exit.ntstatus.fast_fail is not None
    assert crash.exit.ntstatus.fast_fail.code == 7
    assert crash.cpp_exception is not None and crash.cpp_exception.what == "bad shape [7]"


def test_gccs_cpp_exception() -> None:
    crash = died("throw_runtime_error", kind=wine.FULL_DUMP, first=(0x20474343,))
    assert crash.cpp_exception is not None and crash.cpp_exception.type == "std::runtime_error"
    assert crash.cpp_exception.what


@pytest.mark.parametrize(
    ("verb", "kind"), [("delayed_module", "delay-load-module"), ("delayed_procedure", "delay-load-procedure")]
)
def test_what_was_to_be_loaded_late_is_named(verb: str, kind: str) -> None:
    crash = died(verb)
    (message,) = [one for one in crash.messages or () if one.kind == kind]
    assert message.fields["dll"].endswith(".dll")
    assert ("procedure" in message.fields) is (kind == "delay-load-procedure")


def test_without_the_images_nothing_is_made_up(tmp_path: Path) -> None:
    crash = open_minidump.read(wine.dump(build.programs() / "crash.exe", "null_write"), images=(tmp_path,))
    assert all(name is None for name in functions(crash))
    assert crash.stack_reserve is None
    gap = crash.gap("images")
    assert gap is not None and "crash.exe" in gap.why


def test_a_dump_that_is_cut_off_anywhere_is_read_or_refused() -> None:
    from necropsy.errors import InputError

    data = wine.dump(build.programs() / "crash.exe", "null_write").read_bytes()
    read = refused = 0
    for size in range(0, len(data), 4096 + 64):
        try:
            crash = open_minidump.crash_of(parse(data[:size]))
        except InputError:
            refused += 1
            continue
        read += 1
        assert not [gap for gap in crash.gaps if "Error: " in gap.why]
        assert crash.gap("dump") is not None
    assert read > refused


def test_python_stacks_of_a_dump_with_all_memory(tmp_path: Path) -> None:
    python = wine.python()
    script = tmp_path / "train.py"
    script.write_text(
        "import faulthandler, threading, time; up = threading.Lock(); up.acquire()\n"
        "def waiting():\n"
        "    up.release(); time.sleep(600)\n"
        "def inner(n):\n"
        "    return inner(n - 1) if n else faulthandler._read_null()\n"
        "threading.Thread(target=waiting, daemon=True).start()\n"
        "up.acquire()\n"
        "inner(3)\n"
    )
    path = wine.dump(python, wine.windows_path(script), kind=wine.FULL_DUMP)
    crash = open_minidump.read(path, images=(python.parent,))
    path.unlink()
    thread = crash.crashed_thread
    assert thread is not None and thread.python is not None
    assert [(one.function, one.line) for one in thread.python] == [("inner", 5)] * 4 + [("<module>", 8)]
    assert [one.evaluated_by is not None for one in thread.python] == [True] * 5
    others = [one.python for one in crash.threads or () if not one.crashed and one.python]
    assert (others[0][0].function, others[0][0].line) == ("waiting", 3)
    assert crash.environment is not None and (crash.environment.python or "").startswith("3.11.")


def test_the_command_reads_it() -> None:
    folder = build.programs()
    path = wine.dump(folder / "crash.exe", "null_member")
    command = [sys.executable, "-m", "necropsy", "open", "--images", str(folder), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=wine.LONG_S)
    assert done.returncode == 0, done.stderr
    assert "null-dereference" in done.stdout and "weight_of" in done.stdout


def test_windows_reads_it_as_well(tmp_path: Path) -> None:
    """The same command in a Windows Python: no part of the way is of Linux only."""
    folder = build.programs()
    path = wine.dump(folder / "crash.exe", "null_member")
    (tmp_path / "newest.dmp").write_bytes(path.read_bytes())
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "crash.exe").write_bytes((folder / "crash.exe").read_bytes())
    done = wine.run(wine.python(), "-m", "necropsy", "open", "--images", "images", cwd=tmp_path)
    assert done.code32 == 0, done
    assert done.stderr.startswith("necropsy: the newest minidump is newest.dmp")
    assert "null-dereference" in done.stdout and "crash.exe" in done.stdout


def test_the_newest_is_found_where_windows_keeps_them(tmp_path: Path) -> None:
    kept = tmp_path / "CrashDumps"
    kept.mkdir()
    folder = build.programs()
    for age, (name, verb) in enumerate((("python.exe.7.dmp", "null_write"), ("python.exe.8.dmp", "divide_by_zero"))):
        wine.dump(folder / "crash.exe", verb).replace(kept / name)
        os.utime(kept / name, (1_700_000_000 - age,) * 2)
    elsewhere = tmp_path / "empty"
    elsewhere.mkdir()
    # Wine takes this variable from its registry; so it is set inside.
    python, images, local = map(wine.windows_path, (wine.python(), folder, tmp_path))
    line = f"set LOCALAPPDATA={local}&& {python} -m necropsy open --images {images}"
    done = wine.run("cmd.exe", "/c", line, cwd=elsewhere)
    assert done.code32 == 0, done
    assert "null-dereference" in done.stdout and "null_write" in done.stdout
