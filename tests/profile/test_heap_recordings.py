"""Who allocates, as memray has recorded it: real programs, and the figures of memray's own reader."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from necropsy import serialize
from necropsy.errors import NecropsyError
from necropsy.model import Document, Exit, HeapUse, Process, RunRecord
from necropsy.profile.heap_recordings import joined
from necropsy.profile.memray_recording import variables

memray = pytest.importorskip("memray")

MIB = 1 << 20
PROGRAM = """
import os, subprocess, sys, threading
kept = []
def keep(octets):
    kept.append(bytearray(octets))
def passing():
    for _ in range(4):
        bytearray(3 << 20)
def outer():
    keep(20 << 20)
outer()
passing()
threads = [threading.Thread(target=keep, args=(7 << 20,)) for _ in range(2)]
for one in threads:
    one.start()
    one.join()
if sys.argv[1] == "children":
    child = os.fork()
    if not child:
        keep(5 << 20)
        os._exit(3)
    print(os.waitpid(child, 0)[1] >> 8, flush=True)
    subprocess.run([sys.executable, "-c", "x = bytes(9 << 20)"])
print(sys.argv, __name__, sys.modules["__main__"].__file__)
1 / 0
"""


def program(folder: Path) -> str:
    path = folder / "program.py"
    path.write_text(PROGRAM)
    return str(path)


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> tuple[Document, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("heap")
    there = folder / "profile.json"
    words = ["profile", "--heap", "memray", "--json", str(there), "--", sys.executable, program(folder), "children"]
    environment = {**os.environ, "TMPDIR": str(folder), "NECROPSY_KEEP": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "necropsy", *words], capture_output=True, text=True, env=environment, check=False
    )
    assert not list(folder.glob("*necropsy*")), "nothing is left behind"
    return serialize.loads(there.read_bytes()), done


def of(document: Document, *words: str) -> HeapUse:
    (found,) = (one.heap for one in document.processes if one.heap and all(word in str(one.command) for word in words))
    return found


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(PROGRAM.splitlines(), 1) if text in line)


def test_what_was_alive_at_the_peak_has_the_calls_that_allocated_it(
    document: tuple[Document, subprocess.CompletedProcess[str]],
) -> None:
    heap = next(one.heap for one in document[0].processes if one.role == "command")
    assert heap is not None
    assert heap.how == "memray"
    assert heap.complete
    assert heap.peak is not None
    assert 34 * MIB <= heap.peak <= 37 * MIB
    first = heap.stacks[0]
    assert (first.bytes, first.count) == (20 * MIB + 1, 1)
    assert [(one.function, one.line) for one in first.frames] == [
        ("<module>", line_of("outer()\n".strip()) + 2),
        ("outer", line_of("keep(20")),
        ("keep", line_of("kept.append")),
    ]
    assert heap.stacks[1].bytes == 2 * (7 * MIB + 1), "two threads with the same calls are one row"
    assert heap.temporaries[0].bytes == 4 * (3 * MIB + 1)
    assert heap.temporaries[0].frames[-1].function == "passing"
    assert heap.lines[0].frames[0].line == line_of("kept.append")
    assert heap.lines[0].bytes == 34 * MIB + 3
    assert heap.allocated is not None
    assert heap.peak < heap.allocated
    assert heap.peak_at is not None


def test_children_are_recorded_those_that_were_forked_and_those_that_were_started(
    document: tuple[Document, subprocess.CompletedProcess[str]],
) -> None:
    children = [one for one in document[0].processes if one.role == "child"]
    forked = next(one.heap for one in children if one.exit is not None and one.exit.code == 3)
    assert forked is not None
    assert forked.stacks[0].bytes == 5 * MIB + 1
    assert forked.complete
    started = of(document[0], "bytes(9")
    assert 9 * MIB < started.stacks[0].bytes < 9 * MIB + 100


def test_the_program_does_what_it_did(document: tuple[Document, subprocess.CompletedProcess[str]]) -> None:
    done = document[1]
    assert done.returncode == 1
    name = next(one.command for one in document[0].processes if one.command)[1]
    assert done.stdout.splitlines() == ["3", f"['{name}', 'children'] __main__ {name}"]
    assert done.stderr.startswith(f'Traceback (most recent call last):\n  File "{name}", line 25, in <module>\n')
    assert "memray" not in done.stderr.partition("ZeroDivisionError")[0]


def test_the_report_names_the_program_s_lines_and_what_recording_costs(
    document: tuple[Document, subprocess.CompletedProcess[str]],
) -> None:
    said = document[1].stderr
    assert "Heap: at most 3" in said
    assert f"keep (program.py:{line_of('kept.append')})" in said
    assert "Temporary, freed after at most one other allocation" in said
    assert "It ran inside the process" in said


def test_the_figures_are_those_of_memray_itself(tmp_path: Path) -> None:
    command = [sys.executable, program(tmp_path), "alone"]
    environment = {**os.environ, **variables(command, tmp_path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        process.wait()
    (recording,) = tmp_path.glob("*.bin")
    (own,) = joined(RunRecord(processes=(Process(pid=process.pid),)), tmp_path).processes
    heap = own.heap
    assert heap is not None
    assert heap.recorded == recording.stat().st_size
    stats = json.loads(_stats(recording, tmp_path))
    assert heap.peak == stats["metadata"]["peak_memory"]
    assert heap.allocated == stats["total_bytes_allocated"]
    assert heap.count == stats["total_num_allocations"]
    alive = list(memray.FileReader(str(recording)).get_high_watermark_allocation_records(merge_threads=True))
    assert sum(one.size for one in alive) == heap.peak
    assert sum(one.bytes for one in heap.stacks) + (heap.left_out or 0) == heap.peak
    told = {one["location"]: one["size"] for one in stats["top_allocations_by_size"]}
    ours = [one.frames[0] for one in heap.lines]
    unknown = "<stack trace unavailable>"
    assert {f"{one.function}:{one.file}:{one.line}" for one in ours} >= told.keys() - {unknown}
    assert [one.bytes for one in heap.lines[: len(told)]] == sorted(told.values(), reverse=True)


def _stats(recording: Path, folder: Path) -> str:
    there = folder / "stats.json"
    words = ["-m", "memray", "stats", "--json", "-n", "5", "-o", str(there), str(recording)]
    subprocess.run([sys.executable, *words], check=True, capture_output=True)
    return there.read_text()


def test_a_process_that_was_killed_has_what_was_recorded_until_then(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import os; x = bytearray(9 << 20); os.kill(os.getpid(), 9)"]
    with subprocess.Popen(command, env={**os.environ, **variables(command, tmp_path)}) as process:
        process.wait()
    killed = Process(pid=process.pid, exit=Exit(kind="signaled", signal="SIGKILL"))
    (own,) = joined(RunRecord(processes=(killed,)), tmp_path).processes
    assert own.heap is not None
    assert not own.heap.complete
    assert own.heap.stacks[0].bytes == 9 * MIB + 1


def test_a_recording_that_cannot_be_read_is_a_gap(tmp_path: Path) -> None:
    packages = Path(memray.__file__).parent.parent
    (tmp_path / "12.python").write_text(f"{sys.executable}\n{packages}")
    (tmp_path / "12.bin").write_bytes(b"no recording")
    (gap,) = joined(RunRecord(processes=()), tmp_path).gaps
    assert gap.part == "heap"
    assert gap.why.startswith("the recording of process 12 cannot be read: ")


NATIVE = """
import json, threading
class Held:
    pass
Held.text = json.dumps("x" * (6 << 20))
thread = threading.Thread(target=bytearray, args=(9 << 20,))
thread.start()
thread.join()
"""


def test_native_functions_stand_below_the_line_that_called_them(tmp_path: Path) -> None:
    program = tmp_path / "native.py"
    program.write_text(NATIVE)
    heaps: list[HeapUse] = []
    for native in (False, True):
        folder = tmp_path / str(native)
        folder.mkdir()
        command = [sys.executable, str(program)]
        environment = {**os.environ, **variables(command, folder, native=native)}
        with subprocess.Popen(command, env=environment) as process:
            process.wait()
        (own,) = joined(RunRecord(processes=(Process(pid=process.pid),)), folder).processes
        assert own.heap is not None
        heaps.append(own.heap)
    plain, native_one = heaps
    assert not any(frame.file is None for one in plain.stacks for frame in one.frames if one.bytes > MIB)
    text = next(one for one in native_one.stacks if 6 * MIB <= one.bytes < 7 * MIB)
    python = [(one.function, one.line) for one in text.frames if one.file is not None]
    below = [one.function for one in text.frames if one.file is None]
    assert python[0] == ("<module>", 5)
    assert text.frames[-1].file is None, "native functions are the innermost"
    assert any("py_encode_basestring_ascii" in one or "ascii_escape_unicode" in one for one in below), below
    assert native_one.peak is not None
    assert sum(one.bytes for one in native_one.stacks) + (native_one.left_out or 0) == native_one.peak
    # Two runs of the same program allocate the same by their figures, but for what depends on the folder's name.
    assert plain.peak == pytest.approx(native_one.peak, rel=0.02)


def test_an_interpreter_that_is_gone_is_a_gap(tmp_path: Path) -> None:
    (tmp_path / "12.python").write_text("/nowhere/python\n/nowhere")
    (tmp_path / "12.bin").write_bytes(b"")
    (gap,) = joined(RunRecord(processes=()), tmp_path).gaps
    assert gap.why == "the recordings were not read: /nowhere/python: No such file or directory"


def test_nothing_recorded_is_a_gap(tmp_path: Path) -> None:
    (gap,) = joined(RunRecord(processes=()), tmp_path).gaps
    assert "no Python process that has memray was started" in gap.why


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["/bin/ls"], "/bin/ls is not a Python interpreter, so memray cannot record what it allocates"),
        ([sys.executable, "-I", "-c", "1"], f"{sys.executable} -I does nothing before the program"),
    ],
)
def test_what_cannot_be_recorded_is_refused(tmp_path: Path, command: list[str], said: str) -> None:
    with pytest.raises(NecropsyError) as caught:
        variables(command, tmp_path)
    assert str(caught.value) == said
    assert caught.value.hint is not None


def test_an_interpreter_without_memray_is_refused_with_how_to_install_it(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    script = tmp_path / "tool"
    script.write_text(f"#!{bare}\nprint(1)\n")
    script.chmod(0o755)
    with pytest.raises(NecropsyError) as caught:
        variables([str(script)], tmp_path)
    assert str(caught.value) == f"{bare} has no memray, which records what a program allocates"
    assert f"{bare} -m pip install memray" in (caught.value.hint or "")


@pytest.mark.parametrize("library", ["libtcmalloc.so.4", "libjemalloc.so.2", "libasan.so.8", "libclang_rt.asan.so"])
def test_a_preloaded_allocator_is_refused(tmp_path: Path, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", f"/usr/lib/{library}")
    with pytest.raises(NecropsyError, match="which LD_PRELOAD has loaded"):
        variables([sys.executable, "-c", "1"], tmp_path)


def test_a_shell_may_start_python(tmp_path: Path) -> None:
    assert "NECROPSY_AT_START" in variables(["sh", "-c", "python x.py"], tmp_path)
