"""The start of necropsy, disturbed at any moment: it dies of the signal, or the command has it; never both, never half."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from supervised import BY_LAUNCHER, NECROPSY, kill, stat_of, until

BY_PYTHON = [sys.executable, "-m", "necropsy", "run"]
FIRST_MOMENTS_S = 0.25
"""So long a start takes on a machine that is not full; later moments find the command at work."""


def catches(pid: int, signo: int, *, which: str = "SigCgt") -> bool:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(f"{which}:"):
                return bool(int(line.split()[1], 16) >> (signo - 1) & 1)
    return False


@contextlib.contextmanager
def starting(
    *command: str, necropsy: Sequence[str] = NECROPSY, past_python: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """A run from its first moment on. ``past_python``: from the moment when Ctrl-C raises no exception any more.

    Before, without the launcher, the interpreter starts, and prints a traceback or even goes on.
    """
    process = subprocess.Popen(
        [*necropsy, *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        if past_python:
            # On a busy machine the handler may come and go between two looks; the tracer's process stays.
            until(lambda: catches(process.pid, signal.SIGINT) or ours(process.pid), "Python has started")
            until(lambda: not catches(process.pid, signal.SIGINT), "necropsy has started")
        yield process
    finally:
        kill(process.pid, *session_of(process.pid))
        process.communicate()


def session_of(leader: int) -> list[int]:
    numbers = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [one for one in numbers if (stat_of(one) or ["Z", "", "", "0"])[3] == str(leader) and stat_of(one)[0] != "Z"]


@pytest.mark.parametrize("to", ["process", "group"])
@pytest.mark.parametrize(
    ("signo", "necropsy"),
    [(signal.SIGINT, BY_PYTHON), *((one, NECROPSY) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))],
    ids=["SIGINT-python", "SIGINT", "SIGTERM", "SIGHUP"],
)
def test_signals_at_every_moment_of_the_start(
    signo: signal.Signals, necropsy: list[str], to: str, tmp_path: Path
) -> None:
    """No traceback, death by that signal, nothing is left; the command was not started, or died of it too."""
    moments = 8
    for moment in range(moments):
        began = tmp_path / f"{moment}"
        script = f"echo >{began}; exec sleep 30"
        past_python = signo == signal.SIGINT and not (BY_LAUNCHER and necropsy is NECROPSY)
        with starting("--quiet", "sh", "-c", script, necropsy=necropsy, past_python=past_python) as process:
            time.sleep(FIRST_MOMENTS_S * moment / moments)
            (os.kill if to == "process" else os.killpg)(process.pid, signo)
            out, err = process.communicate(timeout=60)
            assert (process.returncode, out, err) == (-signo, b"", b""), moment
            nothing_is_left(process.pid)


def nothing_is_left(leader: int) -> None:
    until(lambda: not session_of(leader), "nothing is left of it")


def test_a_signal_that_is_ignored_does_not_disturb_the_start() -> None:
    script = f"trap '' INT; exec {' '.join(NECROPSY)} sh -c 'echo out; exit 3'"
    for moment in range(5):
        with subprocess.Popen(
            ["sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        ) as process:
            until(lambda: catches(process.pid, signal.SIGINT, which="SigIgn"), "the shell ignores it")
            time.sleep(FIRST_MOMENTS_S * moment / 5)
            os.killpg(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=60)
            assert (process.returncode, out, err) == (3, b"out\n", b"")


def ours(front: int) -> list[int]:
    """The front's children that have not been executed and are not to be: the tracer."""
    try:
        children = [int(one) for one in Path(f"/proc/{front}/task/{front}/children").read_text().split()]
    except OSError:
        return []
    return sorted(children)[:1]  # it is forked before the command


def tracer_of(front: int) -> list[int]:
    found: list[int] = until(lambda: ours(front), "there is a tracer")
    return found


@pytest.mark.parametrize("whose", ["tracer", "front", "all"])
def test_killed_at_every_moment_of_the_start(whose: str, tmp_path: Path) -> None:
    """The command runs to its end as without us, or, where the front was killed too early, does not run at all."""
    rng = random.Random(whose)
    for turn in range(8):
        trail = tmp_path / f"{turn}"
        script = f"echo begin >>{trail}; sleep 0.2; echo out; echo err >&2; echo end >>{trail}; exit 9"
        with starting("--log", "off", "sh", "-c", script) as process:
            tracer_of(process.pid)
            time.sleep(rng.uniform(0, 0.02 if turn % 2 else 0.15))
            victims = {"tracer": ours(process.pid), "front": [process.pid], "all": [process.pid, *ours(process.pid)]}
            kill(*victims[whose])
            out, err = process.communicate(timeout=60)  # nobody has the pipes any more
            seen = trail.read_text().split() if trail.exists() else []
            if whose == "tracer":
                assert process.returncode == 9, turn
            if seen or whose == "tracer":
                assert seen == ["begin", "end"], turn
                assert out == b"out\n" and b"err\n" in err, turn
            else:
                assert out == b"", turn
