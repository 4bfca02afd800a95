"""Source lines come from files as they were when the process started, and are masked like all else."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from necropsy import serialize
from necropsy.capture.linux.inspect.source_lines import Sources
from necropsy.model import Crash


def died(script: Path, *words: str) -> Crash:
    kept = script.with_suffix(".json")
    command = [sys.executable, "-m", "necropsy", "run", "--quiet", "--json", str(kept), "--"]
    subprocess.run(
        [*command, sys.executable, str(script), *words],
        check=False,
        capture_output=True,
        timeout=120,
        cwd=script.parent,
    )
    return serialize.loads(kept.read_bytes()).reports[0].crash


def excerpt_of(crash: Crash, function: str) -> tuple[str, ...]:
    thread = crash.crashed_thread
    assert thread is not None
    return next(frame.excerpt for frame in thread.python or () if frame.function == function)


def lines_of(crash: Crash) -> dict[str, str | None]:
    thread = crash.crashed_thread
    assert thread is not None
    return {frame.function or "": frame.code for frame in thread.python or () if "ctypes" not in (frame.source or "")}


def test_the_lines_of_the_stack_are_read(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import ctypes\n\ndef step(n):\n    ctypes.string_at(n)  # token='hunter2hunter2'\n\nif True:\n    step(16)\n"
    )
    crash = died(script)
    lines = lines_of(crash)
    assert lines["<module>"] == "step(16)"
    assert excerpt_of(crash, "<module>") == ("if True:", "    step(16)", "")
    before, at, after = excerpt_of(crash, "step")
    assert (before, after) == ("def step(n):", "")
    assert at.startswith("    ctypes.string_at(n)")
    assert "hunter2" not in at
    assert crash.environment is not None
    assert crash.environment.working_directory == str(tmp_path)
    assert (lines["step"] or "").startswith("ctypes.string_at(n)")
    assert "hunter2" not in (lines["step"] or "")


def test_a_file_that_has_changed_since_is_not_shown(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import ctypes, pathlib, time\ntime.sleep(0.2)\n"
        "pathlib.Path(__file__).write_text('something else\\n' * 9)\nctypes.string_at(16)\n"
    )
    crash = died(script)
    assert lines_of(crash) == {"<module>": None}
    gap = crash.gap("source lines")
    assert gap is not None
    assert str(script) in gap.why


def test_paths_are_the_processs_own(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("first\nsecond \n\xe9\n", encoding="latin-1")
    os.utime(tmp_path / "a.py", (1, 1))
    os.mkfifo(tmp_path / "pipe.py")
    with subprocess.Popen(["sleep", "60"], cwd=tmp_path) as process:
        sources = Sources(process.pid)
        try:
            assert sources.line("a.py", 2) == "second"
            assert sources.line(str(tmp_path / "a.py"), 1) == "first"
            assert sources.line("a.py", 3) == "\ufffd"
            assert [sources.line("a.py", number) for number in (0, 4, -1)] == [None] * 3
            assert sources.line("pipe.py", 1) is None
            assert sources.line("none.py", 1) is None
            assert sources.line("<string>", 1) is None
            assert sources.changed == []
            (tmp_path / "b.py").write_text("later\n")
            os.utime(tmp_path / "b.py", (time.time() + 5,) * 2)
            assert sources.line("b.py", 1) is None
            assert sources.changed == ["b.py"]
        finally:
            process.kill()
