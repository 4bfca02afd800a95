"""What necropsy was started with and Python's own start destroys: recorded by the launcher (launcher.c).

The launcher is the program ``necropsy`` where it could be compiled; it executes the console script, which is then
``necropsy-python``. Its record is the variable ``NECROPSY_LAUNCHER``: ``pid,ignored,blocked`` or
``pid,ignored,blocked,soft,hard``, all of them decimal. ``ignored`` is a set of signals as in ``SigIgn`` of
/proc/PID/status; ``blocked`` is 1 where the launcher has blocked SIGINT; ``soft`` and ``hard`` are RLIMIT_STACK in
bytes, where the launcher has raised it. A record counts for the process that it names, or for any if the number is 0.
"""

from __future__ import annotations

import os

VARIABLE = "NECROPSY_LAUNCHER"
_NAME = b"necropsy"
_UNLIMITED = 2**64 - 1


class Record:
    """``stack``: the soft and hard limit as ``resource.setrlimit`` takes them; None if unchanged.

    Not a dataclass or named tuple: this is loaded before anything else, while Ctrl-C waits, and imports nothing.
    """

    def __init__(self, ignored: frozenset[int], *, interrupts_blocked: bool, stack: tuple[int, int] | None) -> None:
        self.ignored, self.interrupts_blocked, self.stack = ignored, interrupts_blocked, stack


_record: Record | None = None


def record() -> Record | None:
    """What the launcher has recorded; None where this process was started without it."""
    return _record


def take() -> Record | None:
    """Read the record and remove it from the environment. To be called once, before anything is started."""
    global _record  # noqa: PLW0603 - how this process was started
    text = os.environ.pop(VARIABLE, None)
    if text is None:
        return None
    _record = _read(text)
    if _record is not None:
        _take_name()
    return _record


def for_another() -> dict[str, str]:
    """What to add to the environment of another necropsy that this one starts: its command is to inherit the same."""
    if _record is None:
        return {}
    fields = [0, sum(1 << (number - 1) for number in _record.ignored), 0]
    fields += [_UNLIMITED if limit < 0 else limit for limit in _record.stack or ()]
    return {VARIABLE: ",".join(map(str, fields))}


def _read(text: str) -> Record | None:
    try:
        pid, ignored, blocked, *stack = (int(word) for word in text.split(","))
    except ValueError:
        return None
    if pid not in {0, os.getpid()} or len(stack) not in {0, 2}:
        return None
    limits = [-1 if limit == _UNLIMITED else limit for limit in stack]
    return Record(
        frozenset(number for number in range(1, 65) if ignored >> (number - 1) & 1),
        interrupts_blocked=bool(blocked),
        stack=(limits[0], limits[1]) if limits else None,
    )


def _take_name() -> None:
    """ps(1) and pgrep(1) show the program that the user started, not the script behind it."""
    try:
        handle = os.open("/proc/self/comm", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.write(handle, _NAME)
    except OSError:
        pass
    finally:
        os.close(handle)
