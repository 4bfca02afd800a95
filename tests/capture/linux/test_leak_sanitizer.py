"""Programs that look for leaks when they end: the same exit code and output under necropsy, and the report is read."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import build
from supervised import run, run_and_record, until

from crashers.build import HERE
from necropsy.capture.linux.supervise.leak_sanitizer import LeakSanitizer

SOURCE = (HERE / "leaks.cc").read_text()
KINDS = {
    "address": ("-fsanitize=address",),
    "leak": ("-fsanitize=leak",),
    "static address": ("-fsanitize=address", "-static-libasan"),
}


def has_sanitizer(name: str) -> bool:
    found = subprocess.run(["gcc", f"-print-file-name={name}"], check=False, capture_output=True, text=True).stdout
    return Path(found.strip()).is_absolute()


pytestmark = pytest.mark.skipif(not has_sanitizer("libasan.so"), reason="gcc has no libasan")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sanitized")


def program(folder: Path, kind: str) -> str:
    name = kind.replace(" ", "-")
    made = folder / name
    return str(made if made.exists() else build(folder, SOURCE, "-g", "-O0", *KINDS[kind], name=name, cxx=True))


def said(text: bytes) -> str:
    """What a sanitizer printed, without process ids and addresses."""
    return re.sub(r"0x[0-9a-f]+|==\d+==|\b\d{3,}\b", "N", text.decode())


@pytest.mark.parametrize("way", ["ok", "leak", "children"])
@pytest.mark.parametrize("kind", KINDS)
def test_it_ends_as_without(folder: Path, kind: str, way: str) -> None:
    words = [program(folder, kind), way]
    plain = subprocess.run(words, check=False, capture_output=True, timeout=60)
    ours = run(words, log="off")
    assert (plain.returncode > 0) == (way == "leak")
    assert (ours.returncode, ours.stdout, said(ours.stderr)) == (plain.returncode, plain.stdout, said(plain.stderr))


def test_the_report_says_that_it_was_let_go(folder: Path, tmp_path: Path) -> None:
    ours, record = run_and_record([program(folder, "address"), "ok"], tmp_path, log="off")
    assert ours.returncode == 0
    root = record.processes[0]
    assert root.exit is not None and (root.exit.kind, root.exit.code) == ("exited", 0)
    assert any("LeakSanitizer" in gap.why and program(folder, "address") in gap.why for gap in record.gaps)


@pytest.mark.parametrize(
    ("kind", "way", "rule"),
    [
        ("address", "leak", "sanitizer-report"),
        ("leak", "leak", "sanitizer-report"),
        ("address", "overflow", "heap-buffer-overflow"),
    ],
)
def test_what_the_sanitizer_reports_is_diagnosed(folder: Path, tmp_path: Path, kind: str, way: str, rule: str) -> None:
    document, log = tmp_path / "report.json", tmp_path / "log"
    command = [program(folder, kind), way]
    with log.open("wb") as stderr:
        words = [sys.executable, "-m", "necropsy", "run", "--quiet", "--json", str(document), "--", *command]
        done = subprocess.run(words, check=False, stderr=stderr, stdout=subprocess.PIPE, timeout=60)
    plain = subprocess.run(command, check=False, capture_output=True, timeout=60)
    assert done.returncode == plain.returncode > 0
    (report,) = json.loads(document.read_text())["reports"]
    assert report["verdict"]["rule"] in {rule, "sanitizer-report"}


def test_death_by_a_signal_is_told(folder: Path, tmp_path: Path) -> None:
    words = [program(folder, "leak"), "abort"]
    plain = subprocess.run(words, check=False, capture_output=True, timeout=60)
    ours, record = run_and_record(words, tmp_path, log="off")
    assert ours.returncode == plain.returncode
    assert [crash.pid for crash in record.crashes] == ([record.processes[0].pid] if plain.returncode < 0 else [])


def test_a_child_that_looks_for_leaks(folder: Path, tmp_path: Path) -> None:
    """The command is traced, its child is detached, and what the command itself dies of is read."""
    child = program(folder, "address")
    words = ["sh", "-c", f"{child} ok; echo $?; {child} leak 2>&-; echo $?; kill -SEGV $$"]
    ours, record = run_and_record(words, tmp_path, log="off")
    assert (ours.returncode, ours.stdout) == (-11, b"done\n0\n1\n")
    assert [crash.pid for crash in record.crashes] == [record.processes[0].pid]
    assert [one.exit.kind for one in record.processes if one.exit] == ["signaled", "unknown", "unknown"]


def test_others_are_traced_on_while_the_command_is_not(folder: Path, tmp_path: Path) -> None:
    script = (
        f"python3 -c 'import time, ctypes; time.sleep(0.3); ctypes.string_at(0)' & exec {program(folder, 'address')} ok"
    )
    ours, record = run_and_record(["sh", "-c", script + "; :"], tmp_path, log="off")
    assert (ours.returncode, ours.stdout) == (0, b"done\n")
    assert record.processes[0].exit is not None and record.processes[0].exit.code == 0


@pytest.mark.parametrize("plain_python", [True, False])
def test_python_with_a_preloaded_runtime(folder: Path, tmp_path: Path, plain_python: bool) -> None:
    runtime = subprocess.run(["gcc", "-print-file-name=libasan.so"], check=True, capture_output=True, text=True).stdout
    code = "print('done')"
    if not plain_python:
        source = "void leak(void) { *(void *volatile *)__builtin_alloca(8) = __builtin_malloc(99); }"
        extension = build(folder, source, "-shared", "-fPIC", "-fsanitize=address", name="extension")
        code = f"import ctypes; ctypes.CDLL({str(extension)!r}).leak(); print('done')"
    words = ["env", f"LD_PRELOAD={Path(runtime.strip()).resolve()}", "PYTHONMALLOC=malloc", "python3", "-c", code]
    plain = subprocess.run(words, check=False, capture_output=True, timeout=120)
    ours = run(words, log="off")
    assert plain.stdout == b"done\n"
    assert (ours.returncode, ours.stdout) == (plain.returncode, plain.stdout)
    assert said(ours.stderr).splitlines()[-1:] == said(plain.stderr).splitlines()[-1:]


@contextlib.contextmanager
def waiting(path: str, variables: dict[str, str]) -> Iterator[int]:
    """The program runs, and ends behind this."""
    environment = {**os.environ, **variables}
    with subprocess.Popen([path, "wait"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        until(Path(f"/proc/{process.pid}/environ").read_bytes, "the kernel has laid out the new program's stack")
        yield process.pid


@pytest.mark.parametrize(
    ("variables", "goes"),
    [
        ({}, True),
        ({"ASAN_OPTIONS": "detect_leaks=0"}, False),
        ({"ASAN_OPTIONS": "symbolize=1:detect_leaks=false"}, False),
        ({"ASAN_OPTIONS": "detect_leaks=0,abort_on_error=1", "LSAN_OPTIONS": "detect_leaks=1"}, True),
        ({"LSAN_OPTIONS": "verbosity=0 detect_leaks=0"}, False),
    ],
)
def test_options_that_switch_it_off(folder: Path, variables: dict[str, str], goes: bool) -> None:
    with waiting(program(folder, "address"), variables) as pid:
        assert LeakSanitizer().is_in(pid) == goes


def test_of_a_leak_sanitizer_alone_the_other_variable_means_nothing(folder: Path) -> None:
    with waiting(program(folder, "leak"), {"ASAN_OPTIONS": "detect_leaks=0"}) as pid:
        assert LeakSanitizer().is_in(pid)


def test_ordinary_programs_stay() -> None:
    with subprocess.Popen(["sleep", "30"]) as process:
        sanitizer = LeakSanitizer()
        assert not sanitizer.is_in(process.pid)
        assert not sanitizer.is_in(process.pid)
        process.kill()
    assert not sanitizer.is_in(process.pid)
