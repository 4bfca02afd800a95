"""Has memray record what each Python process of a run allocates: the variables with which it is started for that.

memray runs inside the program. It is begun before the program's first line (``confirm.runner.at_start``), so that the
program's own arguments, its ``__main__`` and its tracebacks stay what they are. Each process writes a file of its own,
named by its number, and children of Python are recorded as well.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from necropsy.confirm.runner import at_start, takes_variables
from necropsy.errors import NecropsyError

INTERPRETER, FAILED, RECORDING = ".python", ".failed", ".bin"
"""Endings of the files of a process: who can read its recording, why there is none, and the recording."""
_BEGIN = """
def _necropsy_begin(name):
    import os
    name = os.path.join(name, str(os.getpid()))
    try:
        import atexit, memray, sys
        with open(name + {interpreter!r}, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(sys.executable + chr(10) + os.path.dirname(os.path.dirname(memray.__file__)))
        to = memray.FileDestination(name + {recording!r}, overwrite=True, compress_on_exit=False)
        tracker = memray.Tracker(destination=to, follow_fork=True, native_traces={native!r})
        tracker.__enter__()
        atexit.register(tracker.__exit__, None, None, None)
    except Exception as error:
        with open(name + {failed!r}, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write("%s: %s" % (type(error).__name__, error))

_necropsy_begin({folder!r})
"""
_ALLOCATORS = re.compile(r"(?:tcmalloc|jemalloc|mimalloc|(?:clang_rt\.|lib)[atm]san)")
_CHECK = "import memray, sys; sys.exit(not hasattr(memray, 'FileDestination'))"
_CHECK_S = 60
_STARTERS = frozenset(
    {
        *("sh", "bash", "dash", "zsh", "ksh", "busybox", "env", "time", "timeout", "nice", "ionice", "nohup", "setsid"),
        *("stdbuf", "numactl", "taskset", "prlimit", "xargs", "make", "unshare", "chrt", "sudo"),
    }
)
"""Programs that start others, which may be Python."""
_ELF, _SHEBANG = b"\x7fELF", b"#!"


def variables(command: Sequence[str], folder: Path, *, native: bool = False) -> dict[str, str]:
    """The environment variables with which the Python processes of a command record into ``folder``.

    ``native``: with the functions of C and C++ that allocate, which takes longer.

    Raises NecropsyError where memray cannot be used here; the message says why, the hint what to do instead.
    """
    preloaded = os.environ.get("LD_PRELOAD", "")
    if (found := _ALLOCATORS.search(preloaded)) is not None:
        error = NecropsyError(f"memray cannot record beside {found[0]}, which LD_PRELOAD has loaded")
        error.hint = "unset LD_PRELOAD for this run, or use --heap sample"
        raise error
    words = _interpreted(command)
    if words is not None:
        try:
            takes_variables(words)
        except NecropsyError as error:
            error.hint = "leave out that option for this run, or use --heap sample"
            raise
        _has_memray(words[0])
    text = _BEGIN.format(folder=str(folder), interpreter=INTERPRETER, failed=FAILED, recording=RECORDING, native=native)
    return at_start(text)


def without(variables: Mapping[str, str]) -> dict[str, str]:
    """The same without those that begin a recording, or have symbols fetched: for an interpreter that only reads."""
    left_out = {"NECROPSY_AT_START", "PYTHONPATH", "DEBUGINFOD_URLS"}
    return {name: value for name, value in variables.items() if name not in left_out}


def _interpreted(command: Sequence[str]) -> list[str] | None:
    """The interpreter's own command line; None of a program that may start one, such as a shell script.

    Raises ``NecropsyError`` where the command can start no Python that would record.
    """
    path = shutil.which(command[0])
    if path is None:
        return None  # whoever starts it will say so
    try:
        with Path(path).open("rb") as file:
            head = file.read(256)
    except OSError:
        return None
    if head.startswith(_ELF):
        names = {Path(path).name, Path(path).resolve().name}
        if names & _STARTERS:
            return None
        if not any(re.fullmatch(r"python\d*(?:\.\d+)*t?", name) for name in names):
            error = NecropsyError(
                f"{command[0]} is not a Python interpreter, so memray cannot record what it allocates"
            )
            error.hint = "give the command that starts Python, or use --heap sample"
            raise error
        return [path, *command[1:]]
    if not head.startswith(_SHEBANG):
        return None
    words = shlex.split(head[2:].partition(b"\n")[0].decode("utf-8", "surrogateescape"))
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    if not words or not Path(words[0]).name.startswith("python"):
        return None
    interpreter = shutil.which(words[0])
    return [interpreter, *words[1:], path, *command[1:]] if interpreter is not None else None


def _has_memray(interpreter: str) -> None:
    try:
        done = subprocess.run(
            [interpreter, "-c", _CHECK],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_CHECK_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return  # the run itself will tell
    if done.returncode == 0:
        return
    error = NecropsyError(f"{interpreter} has no memray, which records what a program allocates")
    error.hint = f"{shlex.quote(interpreter)} -m pip install memray; or use --heap sample, which needs nothing"
    raise error
