"""An op is built again from its source, and the checks say who did it."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import needs
from confirming import confirmed, necropsy, verdict
from necropsy.confirm import compiler
from necropsy.confirm.compiler import Builder

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the supervisor is for Linux"),
    pytest.mark.skipif(not (shutil.which("gcc") and shutil.which("g++")), reason="this builds ops"),
]

# A block of 2,000 bytes is none of the tcache's: free() always looks at the size behind it. What 24 bytes overrun depends
# on what lies behind them, and now and then that was nothing that anybody missed. 2,016 bytes reach as far as that size,
# and no further: behind the last block the heap may end.
SOURCE = r"""
#include <stdlib.h>
char *volatile block;
extern "C" int smash(int n) {
  volatile char local[16];
  for (int i = 0; i < n; i++) local[i] = (char)(i + 1);
  return local[n % 16];
}
extern "C" int overrun(int n) {
  block = (char *)malloc(2000);
  for (int i = 0; i < n; i++) block[i] = 'x';  // the write
  free(block);
  return 0;
}
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    place = tmp_path_factory.mktemp("op")
    source, library = place / "op.cc", place / "op.so"
    source.write_text(SOURCE)
    flags = ["-O1", "-fno-stack-protector", "-shared", "-fPIC"]
    subprocess.run(["g++", *flags, "-o", str(library), str(source)], check=True)
    return source, library


@pytest.fixture
def op(compiled: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The source, which no test changes, and its library; campaigns share their builds, as those of a user do."""
    monkeypatch.setenv("NECROPSY_BUILDS", str(compiled[0].parent / "builds"))
    (tmp_path / "call.py").write_text(
        "import ctypes, sys\ngetattr(ctypes.CDLL(sys.argv[1]), sys.argv[2])(int(sys.argv[3]))\n"
    )
    return compiled


@pytest.fixture
def own_op(op: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Path]:
    """The same, to be changed."""
    source, library = op
    return Path(shutil.copy(source, tmp_path)), Path(shutil.copy(library, tmp_path))


@pytest.mark.parametrize(
    ("function", "size", "found_at"),
    [("smash", 300, ("stack-smash", "op.cc:6")), ("overrun", 2016, ("heap-buffer-overflow", "op.cc:11"))],
)
def test_the_checks_name_the_line(
    op: tuple[Path, Path], tmp_path: Path, function: str, size: int, found_at: tuple[str, str]
) -> None:
    source, library = op
    command = (sys.executable, tmp_path / "call.py", library, function, size)
    document, _ = confirmed(tmp_path, *command, options=("--op-source", str(source)))
    found = verdict(document)
    assert found.status == "confirmed", [one.outcome for one in found.experiments]
    (checked,) = [one for one in found.experiments if "-fsanitize=address" in one.name]
    assert all(part in checked.outcome for part in found_at), checked.outcome
    levels = [one for one in found.experiments if one.name in {"op -O0", "op -O1", "op -O2", "op -O3"}]
    assert len(levels) == 4
    assert all(one.runs or "the same bytes as" in one.outcome for one in levels)
    # It was built with -O1 at first, and what was run already is not run again.
    (again,) = [one for one in levels if one.name == "op -O1"]
    assert (again.runs, again.outcome.partition(", which ")[0]) == (0, "the same bytes as the library itself")
    assert "dies" in again.outcome


@pytest.mark.parametrize(("bound", "is_right"), [("i < n && i < 16", True), ("i < n && i < 200", False)])
def test_a_corrected_source_is_tried_in_each_build_in_which_the_old_one_dies(
    op: tuple[Path, Path], tmp_path: Path, bound: str, is_right: bool
) -> None:
    source, library = op
    fixed = tmp_path / "op_fixed.cc"
    fixed.write_text(SOURCE.replace("i < n; i++) local[i]", f"{bound}; i++) local[i]"))
    command = (sys.executable, tmp_path / "call.py", library, "smash", 300)
    document, text = confirmed(tmp_path, *command, options=("--op-source", str(source), "--op-fixed", str(fixed)))
    found = verdict(document)
    (fix,) = [one for one in found.fixes if fixed.name in one.text]
    assert fix.verified is is_right
    tried = [one for one in found.experiments if one.name.endswith(" from op_fixed.cc")]
    # Under the sanitizer, and as the library was built: with -O1.
    assert ["-fsanitize=address" in one.name for one in tried] == [True, False]
    assert tried[1].name == "op -O1 from op_fixed.cc"
    assert all(one.crashed == 0 and one.runs == 2 for one in tried) is is_right
    assert ("under AddressSanitizer too" in fix.text) is is_right
    assert ("op_fixed.cc does not correct it" in " ".join(text.split())) is not is_right


def test_a_correction_of_what_dies_now_and_then_is_decided_by_what_the_sanitizer_sees_each_time(
    op: tuple[Path, Path], tmp_path: Path
) -> None:
    source, library = op
    fixed = tmp_path / "op_fixed.cc"
    fixed.write_text(SOURCE.replace("i < n; i++) local[i]", "i < n && i < 16; i++) local[i]"))
    (tmp_path / "call.py").write_text(
        "import ctypes, os, pathlib, sys\n"
        "count = pathlib.Path('count')\n"
        "number = int(count.read_text()) if count.exists() else 0\n"
        "count.write_text(str(number + 1))\n"
        # Always the same dice: without the sanitizer the number of the run decides.
        "if 'ASAN_OPTIONS' in os.environ or number % 2 == 0:\n"
        "    getattr(ctypes.CDLL(sys.argv[1]), sys.argv[2])(int(sys.argv[3]))\n"
    )
    command = (sys.executable, tmp_path / "call.py", library, "smash", 300)
    document, _ = confirmed(tmp_path, *command, options=("--op-source", str(source), "--op-fixed", str(fixed)))
    found = verdict(document)
    unchanged = found.experiments[0]
    assert unchanged.runs > unchanged.crashed == 4
    by_name = {one.name: one for one in found.experiments}
    (sanitized,) = [one for name, one in by_name.items() if name.endswith("-fsanitize=address")]
    assert (sanitized.crashed, sanitized.runs) == (3, 3)
    assert by_name[f"{sanitized.name} from op_fixed.cc"].runs == 2
    assert by_name["op -O1 from op_fixed.cc"].runs == math.ceil(1.115 * unchanged.runs)
    (fix,) = [one for one in found.fixes if fixed.name in one.text]
    assert fix.verified


def test_a_corrected_source_alone_is_refused(op: tuple[Path, Path], tmp_path: Path) -> None:
    done = necropsy("run", "--confirm", "--yes", "--op-fixed", tmp_path / "f.cc", "--", "true", cwd=tmp_path)
    assert done.returncode == 125, "under `run`, whose other codes are the command's own"
    assert "give that one with --op-source" in done.stderr


def test_the_same_build_is_made_once(own_op: tuple[Path, Path], tmp_path: Path) -> None:
    source, library = own_op
    made = Builder(source, library, sys.executable, tmp_path / "builds")
    first = made.build(("-O1",))
    stamp = first.stat().st_mtime_ns
    assert made.build(("-O1",)) == first
    assert first.stat().st_mtime_ns == stamp
    assert made.build(("-O2",)) != first
    (tmp_path / "own.h").write_text("#define SIZE 1\n")
    source.write_text(SOURCE + '#include "own.h"\nint size = SIZE;\n')
    second = made.build(("-O1",))
    (tmp_path / "own.h").write_text("#define SIZE 2\n")
    assert len({first, second, made.build(("-O1",))}) == 3


def test_only_the_builds_that_were_used_last_are_kept(
    op: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "KEPT", 2)
    source, library = op
    made = Builder(source, library, sys.executable, tmp_path / "builds")
    builds = []
    for place, flag in enumerate(("-DA", "-DB", "-DC")):
        builds.append(made.build((flag,)))
        os.utime(builds[-1].parent, (place, place))
    made.build(("-DD",))
    assert [path.exists() for path in builds] == [False, False, True]
    assert not list((tmp_path / "builds").glob("unfinished-*"))


def test_a_source_that_is_not_there_is_told_in_a_line(op: tuple[Path, Path], tmp_path: Path) -> None:
    _, library = op
    command = (sys.executable, tmp_path / "call.py", library, "smash", 300)
    done = necropsy("run", "--confirm", "--yes", "--op-source", tmp_path / "none.cc", "--", *command, cwd=tmp_path)
    assert done.returncode < 0
    assert "there is no such file" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_source_that_does_not_compile_costs_only_its_rows(own_op: tuple[Path, Path], tmp_path: Path) -> None:
    source, library = own_op
    source.write_text("this is no C++\n")
    command = (sys.executable, tmp_path / "call.py", library, "smash", 300)
    document, _ = confirmed(tmp_path, *command, options=("--op-source", str(source)))
    rows = [one for one in verdict(document).experiments if one.name.startswith("op ")]
    assert len(rows) == 6
    assert all("does not compile" in one.outcome for one in rows)


@pytest.mark.tensorflow
@needs.package("tensorflow")
def test_an_op_of_tensorflow_is_built_as_tensorflow_says(tmp_path: Path) -> None:
    source = tmp_path / "op.cc"
    calls = 'extern "C" int used(TF_OpKernelContext *call) { return TF_NumInputs(call); }'
    source.write_text(f'#include "tensorflow/c/kernels.h"\n{calls}\n')
    built = Builder(source, tmp_path / "op.so", sys.executable, tmp_path / "builds").build(["-O0"])
    assert b"libtensorflow_framework.so" in built.read_bytes()
