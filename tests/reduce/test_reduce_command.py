"""``necropsy reduce`` on programs that really die."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from necropsy import sandbox, serialize
from necropsy.reduce.workspace import PREFIX, Workspace
from necropsy.temporary_folders import remove_abandoned
from needs import command as needs_command

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="reduce works on Linux only"),
    needs_command("gcc"),
]

NATIVE = """
static const int *table;
void install(const int *values) { table = values; }
int gather(const int *index, int count) {
    int sum = 0;
    for (int i = 0; i < count; i++) sum += table[index[i]];
    return sum;
}
"""
HELPER = '''"""Reads rows."""
import csv


def read_rows(path):
    with open(path, newline="") as file:
        return [row for row in csv.DictReader(file)]


def unused(number):
    return number * 2
'''
SCRIPT = '''"""A program that dies of one row."""
import argparse
import ctypes
import os
import shutil

import helper

LIBRARY = ctypes.CDLL(os.path.join(os.path.dirname(os.path.abspath(__file__)), "native.so"))
LIBRARY.install.argtypes = [ctypes.POINTER(ctypes.c_int)]
LIBRARY.gather.argtypes = [ctypes.POINTER(ctypes.c_int), ctypes.c_int]


class Table:
    def __init__(self, size):
        self.values = (ctypes.c_int * size)(*range(size))

    def install(self):
        LIBRARY.install(self.values)


def clean():
    # Without its condition this deletes what it should not.
    for name in os.listdir(".."):
        if name == "scratch":
            shutil.rmtree(os.path.join("..", name))
    with open("written", "w") as file:
        file.write("x")
    os.remove("data.csv")


def step(batch):
    indices = [int(row["value"]) for row in batch]
    array = (ctypes.c_int * len(indices))(*indices)
    return LIBRARY.gather(array, len(indices))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=100)
    options = parser.parse_args()
    rows = helper.read_rows("data.csv")
    clean()
    table = Table(options.size)
    table.install()
    total = 0
    for start in range(0, len(rows), 10):
        total += step(rows[start : start + 10])
    print("total", total)


if __name__ == "__main__":
    main()
'''

FEW_LINES = """\
import ctypes
import json

PLACES = [int(word) for word in open("data.csv").read().split()]


def largest(places):
    found = 0
    for place in places:
        if place > found:
            found = place
    return found


print(json.dumps(PLACES[:3]))
if largest(PLACES) > 10:
    print("reading")
    ctypes.string_at(largest(PLACES))
"""


def write(folder: Path) -> None:
    (folder / "native.c").write_text(NATIVE)
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", folder / "native.so", folder / "native.c"], check=True)
    (folder / "helper.py").write_text(HELPER)
    (folder / "beside.py").write_text("never = 1\n" * 100)
    (folder / "train.py").write_text(SCRIPT)
    rows = [f"{number},{number % 90 if number != 137 else 900000000}" for number in range(300)]
    (folder / "data.csv").write_text("id,value\n" + "\n".join(rows) + "\n")


def hashes(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): f"{path.stat().st_mode:o} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def reduce(folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "necropsy", "reduce", *map(str, words)],
        cwd=folder,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=500,
        check=False,
    )


@pytest.fixture(scope="module")
def done(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, Path, subprocess.CompletedProcess[str], dict[str, str]]:
    """A reduction that went to its end: its folder, its document, what it said, the folder's hashes before.

    The first worker that needs it makes it, the others wait for it.
    """
    base = tmp_path_factory.getbasetemp()
    shared = (base if base.name.startswith("pytest-") else base.parent) / "reduced-to-its-end"
    shared.mkdir(exist_ok=True)
    folder, file, kept = shared / "work", shared / "document.json", shared / "done.json"
    with (shared / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            folder.mkdir()
            write(folder)
            before = hashes(folder)
            words = ("--yes", "--json", file, "--output", shared / "result")
            said = reduce(folder, *words, "--", sys.executable, "train.py")
            kept.write_text(json.dumps([said.returncode, said.stdout, said.stderr, before]))
    code, out, err, before = json.loads(kept.read_text())
    assert code == 0, err
    return folder, file, subprocess.CompletedProcess("reduce", code, out, err), before


Done = tuple[Path, Path, subprocess.CompletedProcess[str], dict[str, str]]


def test_little_is_left_and_the_call_is_in_it(done: Done) -> None:
    folder, file, said, _ = done
    document = serialize.loads(file.read_bytes())
    reduction = document.reduction
    assert reduction is not None
    assert reduction.finished
    assert 30 < reduction.statements_before < 60  # without what the program does not open
    assert reduction.statements <= 0.4 * reduction.statements_before
    assert "LIBRARY.gather(" in (folder.parent / "result" / "train.py").read_text()
    assert "900000000" not in said.stdout or "gather" in said.stdout
    assert said.stdout.rstrip().endswith(str(folder.parent / "result"))
    assert "Run it: cd " in said.stdout
    first, last = document.reports
    assert first.signature == last.signature == reduction.signature
    assert {one.kind for one in reduction.files} <= {"python", "data", "other"}
    assert sum(stage.trials for stage in reduction.stages) <= reduction.trials


def test_the_result_alone_dies_the_same_death(done: Done, tmp_path: Path) -> None:
    folder, file, _, _ = done
    reduction = json.loads(file.read_text())["reduction"]
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", folder.parent / "result", copy], check=True)
    out = tmp_path / "run.json"
    words = [sys.executable, "-m", "necropsy", "run", "--quiet", "--json", str(out), *reduction["command"]]
    subprocess.run(words, cwd=copy, check=False, capture_output=True)
    assert json.loads(out.read_text())["reports"][0]["signature"] == reduction["signature"]


def test_the_folder_of_the_user_is_not_touched(done: Done) -> None:
    folder, _, _, before = done
    assert hashes(folder) == before


def test_a_folder_of_an_earlier_result_is_not_written_over(done: Done) -> None:
    folder, _, _, _ = done
    said = reduce(folder, "--yes", "--output", folder.parent / "result", "--", sys.executable, "train.py")
    assert said.returncode == 2
    assert "not an empty folder" in said.stderr


@pytest.mark.parametrize(
    ("script", "code", "words"),
    [
        ("print('well')", 65, "no native crash to reduce"),
        ("raise ValueError('odd')", 65, "Python exception"),
        ("import os, ctypes; os.path.exists('x') or open('/proc/self/nothing/x')", 65, "Python exception"),
    ],
)
def test_there_is_nothing_to_reduce(script: str, code: int, words: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(script + "\n")
    said = reduce(tmp_path, "--yes", "--runs", "2", "--json", "a.json", "--", sys.executable, "a.py")
    assert said.returncode == code
    assert words in said.stderr
    assert "necropsy/reduce" not in said.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "a.py"]
    assert json.loads((tmp_path / "a.json").read_text())["reduction"]["finished"] is False


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--yes", "--", sys.executable, "missing.py"), 66, "no script missing.py"),
        (("--yes", "--", "python9.9", "a.py"), 127, "necropsy reduce -- python3 SCRIPT"),
        (("--yes", "--", "bash", "a.sh"), 2, "no Python interpreter"),
        (("--yes", "--", sys.executable, "-c", "1"), 2, "by -c"),
        (("--", sys.executable, "a.py"), 2, "--yes"),
        (("--yes",), 2, "Missing argument"),
        (("--yes", "--json", "none/a.json", "--", sys.executable, "a.py"), 2, "no folder"),
        (("--yes", "--output", "/proc/none", "--", sys.executable, "a.py"), 2, "nothing can be written to /proc"),
        (("--yes", "--jobs", "0", "--", sys.executable, "a.py"), 2, "--jobs"),
    ],
)
def test_what_cannot_be_reduced_is_said_in_one_line(
    words: tuple[str, ...], code: int, said: str, tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_text("pass\n")
    result = reduce(tmp_path, *words)
    assert result.returncode == code, result.stderr
    assert said in result.stderr
    assert "Traceback" not in result.stderr
    assert "--yes" in said or "will run" not in result.stderr


def test_a_budget_of_nothing_gives_the_program_as_it_is(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    write(work)
    said = reduce(work, "--yes", "--budget", "0", "--json", "../a.json", "--", sys.executable, "train.py")
    assert said.returncode == 0, said.stderr
    assert (work / "train-reduced" / "train.py").read_text() == SCRIPT
    reduction = json.loads((tmp_path / "a.json").read_text())["reduction"]
    assert not reduction["finished"]
    assert reduction["statements"] == reduction["statements_before"]
    assert "stopped before its end" in said.stdout


def test_trials_at_the_same_time_leave_the_same(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "train.py").write_text(FEW_LINES)
    (work / "data.csv").write_text("\n".join(str(16 if number == 70 else number % 9) for number in range(100)))
    before = hashes(work)
    for jobs in ("1", "2"):
        said = reduce(work, "--yes", "--jobs", jobs, "--output", tmp_path / jobs, "--", sys.executable, "train.py")
        assert said.returncode == 0, said.stderr
    results = [hashes(tmp_path / jobs) for jobs in ("1", "2")]
    assert results[0] == results[1]
    assert (tmp_path / "1/train.py").read_text() != FEW_LINES
    assert hashes(work) == before


@pytest.mark.parametrize(("number", "jobs"), [(signal.SIGINT, 1), (signal.SIGINT, 2), (signal.SIGKILL, 2)])
def test_it_is_stopped_in_the_middle(number: signal.Signals, jobs: int, tmp_path: Path) -> None:
    work, temporary = tmp_path / "work", tmp_path / "tmp"
    work.mkdir()
    temporary.mkdir()
    write(work)
    before = hashes(work)
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "necropsy",
            "reduce",
            "--yes",
            "--jobs",
            str(jobs),
            "--output",
            tmp_path / "out",
            "--",
            sys.executable,
            "train.py",
        ],
        cwd=work,
        env={**os.environ, "TMPDIR": str(temporary)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    notes = next_file(temporary, "necropsy-reduce-*/logs/notes")
    time.sleep(1.0)  # in the middle of a stage
    process.send_signal(number)
    status = process.wait(120)
    assert hashes(work) == before
    if number == signal.SIGINT:
        assert status == 130
        assert (tmp_path / "out" / "train.py").is_file()
        assert not list(temporary.glob("necropsy-reduce-*"))
    else:
        wait_until_gone(str(notes.parent.parent))
        old, tempfile.tempdir = tempfile.tempdir, str(temporary)
        try:
            remove_abandoned(PREFIX)
        finally:
            tempfile.tempdir = old
        assert not list(temporary.glob("necropsy-reduce-*"))


def next_file(folder: Path, pattern: str) -> Path:
    for _ in range(1200):
        found = list(folder.glob(pattern))
        if found:
            return found[0]
        time.sleep(0.05)
    raise AssertionError(f"no {pattern} in {folder}")


def wait_until_gone(word: str) -> None:
    """Until no process has the word in its command."""
    for _ in range(2400):
        if not any(word.encode() in command_of(path) for path in Path("/proc").glob("[0-9]*/cmdline")):
            return
        time.sleep(0.05)
    raise AssertionError(f"a process with {word} is left")


def command_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # any process of the machine may end meanwhile
        return b""


@pytest.mark.skipif(not sandbox.version(), reason="this kernel has no Landlock")
def test_a_trial_cannot_write_elsewhere(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "kept").write_text("kept")
    code = (
        "import os, sys, socket\n"
        "open('new', 'w').close(); os.mkdir('folder'); open('/dev/null', 'w').close()\n"
        "for act in (lambda: open(sys.argv[1] + '/new', 'w'), lambda: os.remove(sys.argv[1] + '/kept'),\n"
        "            lambda: os.mkdir(sys.argv[1] + '/folder'), lambda: os.rename('new', sys.argv[1] + '/new')):\n"
        "    try:\n        act()\n    except OSError: continue\n    sys.exit('could')\n"
    )
    command = [sys.executable, "-c", code, str(outside)]
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(sandbox.__file__), str(inside), "--", *command],
        cwd=inside,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [path.name for path in outside.iterdir()] == ["kept"]


def test_a_workspace_is_put_in_order_again() -> None:
    workspace = Workspace()
    try:
        files = {"a.py": b"1", "data/b.csv": b"2"}
        workspace.put(files)
        (workspace.work / "a.py").write_bytes(b"9")
        os.utime(workspace.work / "a.py", (0, 0))
        (workspace.work / "data" / "b.csv").unlink()
        (workspace.work / "data").chmod(0o500)
        (workspace.work / "new").mkdir()
        (workspace.work / "new" / "file").write_bytes(b"")
        (workspace.tmp / "left").write_bytes(b"")
        workspace.put(files)
        found = {
            str(one.relative_to(workspace.work)): one.read_bytes() for one in workspace.work.rglob("*") if one.is_file()
        }
        assert found == files
        assert not list(workspace.tmp.iterdir())
    finally:
        workspace.close()
    assert not workspace.base.exists()


def test_a_large_folder_is_linked_where_it_is_not_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[Workspace.__module__], "_MOST_BYTES", 10)
    for name in ("a.bin", "b.bin", "c.py"):
        (tmp_path / name).write_bytes(b"x" * 20)
    workspace = Workspace()
    try:
        copied = workspace.copy(tmp_path)
        assert set(copied.files) == {"a.bin", "c.py"}
        assert copied.linked == ("b.bin",)
        assert (workspace.work / "b.bin").read_bytes() == b"x" * 20
    finally:
        workspace.close()
