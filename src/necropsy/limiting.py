"""The verb of ``necropsy profile --limits``: the smallest limits with which a command works, as a document."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import msgspec

from necropsy import redact
from necropsy.confirm.runner import Command, Runner, readable_input
from necropsy.document import of_run
from necropsy.errors import CommandNotFoundError
from necropsy.model import Document, RunRecord
from necropsy.profile.smallest_limits import LimitSearch

LIMITS = 2
"""How many limits are looked for."""
_TIMEOUT_S, _LONGER = 3600.0, 4


class Searched(NamedTuple):
    """What was found, in how many runs; ``same_output``: whether the output had to be the same."""

    document: Document
    runs: int
    same_output: bool


def smallest_limits(
    command: Sequence[str], budget_s: float | None, timeout_s: float | None, tell: Callable[[str], None]
) -> Searched:
    """Run the command under ever closer limits.

    Raises CommandNotFoundError where there is no such command, and InputError where it does not work without
    limits, or only sometimes.
    """
    if shutil.which(command[0]) is None:
        raise CommandNotFoundError(f"{command[0]}: command not found")
    with tempfile.TemporaryDirectory(prefix="necropsy-limits-") as scratch:
        target = Command(tuple(command), Path.cwd(), reads=readable_input())
        with closing(Runner(target, Path(scratch), timeout_s or _TIMEOUT_S)) as runner:
            search = LimitSearch(runner, budget_s, tell, longer=None if timeout_s is not None else _LONGER)
            found = search.conduct()
    processes = search.document.processes if search.document is not None else ()
    document = of_run(RunRecord(processes=processes, gaps=tuple(search.gaps)), command, ())
    document = msgspec.structs.replace(document, kind="profile", smallest_limits=found)
    return Searched(redact.document(document), search.runs, search.same_output)
