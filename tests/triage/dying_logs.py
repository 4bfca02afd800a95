"""Logs of processes that really died: in the words of the program, of faulthandler, and of the shell that waited."""

from __future__ import annotations

import random
import shlex
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import dying_program

PROGRAM = Path(dying_program.__file__)
WAYS = tuple(dying_program.WAYS)


@cache
def died(way: str, nth: int = 0) -> str:
    """What a process that died in this ``way`` has written, and its shell; each ``nth`` is another process."""
    del nth
    command = shlex.join([sys.executable, str(PROGRAM), way])
    # With a second command, bash does not become the program, and tells of its end.
    ran = subprocess.run(
        ["bash", "-c", f"{command}; true"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return ran.stdout


def mixed(logs: Sequence[str], order: random.Random) -> str:
    """The lines of several logs as they arrive in a collector: in any order, but each log's own in theirs."""
    left = [log.splitlines(keepends=True)[::-1] for log in logs]
    lines = []
    while any(left):
        lines.append(order.choice([one for one in left if one]).pop())
    return "".join(lines)


def prefixed(log: str, prefix: str) -> str:
    """The log as a collector writes it."""
    return "".join(f"{prefix}{line}" for line in log.splitlines(keepends=True))
