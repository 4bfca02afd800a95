"""Python stacks of a stopped process, by py-spy."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from necropsy.capture.process.pystack import ENTRY, MOST_FRAMES, PythonStackError
from necropsy.model import Frame

_LONGEST_LOCAL = 200


def find_py_spy() -> str | None:
    """The py-spy that was installed with this tool, else one on PATH."""
    for folder in (Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))):
        path = folder / "py-spy"
        if path.is_file():
            return str(path)
    return shutil.which("py-spy")


class Dump:
    """py-spy at work beside us: started at once, collected when its answer is needed."""

    def __init__(self, pid: int, *, with_locals: bool) -> None:
        """Start it.

        Raises:
            PythonStackError: it is not installed or does not start.

        """
        self.holds_gil: int | None = None
        """The thread that held the GIL, once collected; None where none did or py-spy cannot tell."""
        path = find_py_spy()
        if path is None:
            raise PythonStackError("py-spy is not installed")
        command = [path, "dump", "--nonblocking", "--json", "--pid", str(pid)]
        if with_locals:
            command.insert(4, "--locals")
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise PythonStackError(f"py-spy does not start: {error.strerror}") from None

    def collect(self, limit_s: float, pointers: Mapping[int, int] | None = None) -> dict[int, tuple[Frame, ...]]:
        """The Python frames of each thread by its id, innermost first; threads without Python are not in it.

        Args:
            limit_s: seconds that it may take.
            pointers: thread pointer (``fs_base``) -> id of the thread. CPython before 3.11 knows its threads by what
                ``pthread_self`` returns, which on x86-64 is this pointer.

        Raises:
            PythonStackError: it was refused, failed, or took more than ``limit_s`` seconds.

        """
        try:
            out, complaint = self._process.communicate(timeout=max(limit_s, 0.1))
        except subprocess.TimeoutExpired:
            self.stop()
            raise PythonStackError(f"py-spy gave no answer within {limit_s:.0f} s") from None
        if self._process.returncode:
            raise PythonStackError(f"py-spy: {_last_words(complaint)}")
        self.holds_gil = gil_holder(out, pointers)
        return parse(out, pointers)

    def stop(self) -> None:
        """End it, whatever it does."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()


def _last_words(complaint: bytes) -> str:
    text = complaint.decode("utf-8", "replace").partition("Stack backtrace")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # "Error: ..." comes first, its reasons after it.
    said = [line.removeprefix("Error: ").removeprefix("Reason: ") for line in lines if "RUST_BACKTRACE" not in line]
    return "; ".join(said[:3]) or "failed without a word"


def parse(data: bytes, pointers: Mapping[int, int] | None = None) -> dict[int, tuple[Frame, ...]]:
    """What ``py-spy dump --json`` printed.

    Raises:
        PythonStackError: it is not that.

    """
    try:
        threads = json.loads(data)
        known = ((_id_of(thread, pointers), thread) for thread in threads)
        return {tid: _frames(thread["frames"]) for tid, thread in known if tid}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise PythonStackError(f"py-spy said something unexpected: {type(error).__name__}") from None


def _id_of(thread: Mapping[str, Any], pointers: Mapping[int, int] | None) -> int | None:
    found: int | None = thread.get("os_thread_id") or (pointers or {}).get(thread.get("thread_id") or 0)
    return found


def gil_holder(data: bytes, pointers: Mapping[int, int] | None = None) -> int | None:
    """The thread that holds the GIL, by what ``py-spy dump --json`` printed."""
    try:
        return next((_id_of(one, pointers) for one in json.loads(data) if one.get("owns_gil")), None)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _frames(frames: Sequence[dict[str, Any]]) -> tuple[Frame, ...]:
    return tuple(
        Frame(
            index=index,
            kind="python",
            function=one.get("name"),
            source=one.get("filename"),
            line=one.get("line") or None,
            locals=_locals(one.get("locals")),
            evaluated_by=ENTRY if one.get("is_entry") or one.get("is_shim_entry") else None,
        )
        for index, one in enumerate(frames[:MOST_FRAMES])
    )


def _locals(found: Sequence[dict[str, Any]] | None) -> dict[str, str] | None:
    if found is None:
        return None
    return {one["name"]: str(one.get("repr"))[:_LONGEST_LOCAL] for one in found}
