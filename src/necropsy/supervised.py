"""A process of our own under the supervisor of ``necropsy run``: the command that starts it, and what came of it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from necropsy.errors import NecropsyError

if TYPE_CHECKING:
    from necropsy.model import Document

GRACE_S = 3.0
"""Seconds that a process has to end by itself when its time is over."""
_SYSTEMS = ("linux", "win32")
# Not `-m`: that would put the working directory before our own packages. So does `-c`, as an empty entry, but not in
# Windows' embeddable Python.
_START = (
    "import sys; sys.path[:1] = filter(None, sys.path[:1]); sys.argv[0] = 'necropsy'; "
    "from necropsy.cli import main; sys.exit(main())"
)


def command(
    report: Path, deadline: float | None, options: Sequence[str] = (), *, verb: Literal["run", "profile"] = "run"
) -> list[str]:
    """The words to put before a command; none on systems without a supervisor.

    ``report``: path of the JSON document; ``deadline``: a ``time.time()``, plus ``GRACE_S``; ``options``: more of
    ``necropsy run``, or of the other ``verb``.
    """
    if sys.platform not in _SYSTEMS:
        return []
    words = [sys.executable, "-c", _START, verb, "--quiet", "--json", str(report)]
    if deadline is not None:
        words += ["--timeout", str(max(0.1, deadline + GRACE_S - time.time()))]
    return [*words, *options, "--"]


def document(report: Path) -> Document | None:
    """The document at ``report``; None where there is none."""
    from necropsy import serialize  # loaded when there is a document to read

    try:
        return serialize.loads(report.read_bytes())
    except (OSError, NecropsyError):
        return None


def is_open(handle: int) -> bool:
    """The file descriptor ``handle`` is open."""
    try:
        os.fstat(handle)
    except OSError:
        return False
    return True
