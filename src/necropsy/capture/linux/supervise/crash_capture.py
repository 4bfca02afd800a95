"""Reads a stopped process, whatever goes wrong, and loads what a report needs while nothing happens.

That costs little then, and time at the death.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import time
from collections.abc import Iterator

from necropsy.capture.linux.supervise.crash_context import CrashContext
from necropsy.capture.linux.supervise.minimal_crash import messages_of, minimal
from necropsy.capture.process import symbols
from necropsy.model import Crash, Gap

AFTER_S = 200.0
"""Loading all takes some 0.2 s of CPU, and may take no more than a thousandth of the run."""
SOON_S = 1.0
"""What every report needs is worth its time once the run is longer than its own start."""
QUIET_S = 0.02
"""Nothing has happened for so long: nobody waits while a piece is loaded."""


def read(death: CrashContext) -> Crash:
    """Everything that the stopped process shows. Never raises: the process must die its own death."""
    try:
        from necropsy.capture.linux.inspect import crash_builder

        return crash_builder.capture(death)
    except Exception as error:  # noqa: BLE001 - a defect in reading must cost the report, not the process
        return minimal(death, Gap(part="threads", why=f"reading failed: {type(error).__name__}: {error}"))


def loading() -> Iterator[None]:
    """Load what ``read`` needs, piece by piece; never raises."""
    here = "necropsy.capture.linux"
    ours = (
        f"{here}.{name}"
        for name in (
            "unwind.symbolizer",
            "unwind.unwinder",
            "core.small_core",
            "inspect.crash_builder",
        )
    )
    for name in ("drgn", "capstone", "capstone.x86_const", *ours):
        with contextlib.suppress(Exception):  # the report lists what is missing
            importlib.import_module(name)
        yield
    with contextlib.suppress(Exception):
        from necropsy.capture.process.secret_bytes import literals

        literals()
    yield


_INSPECT = "necropsy.capture.linux.inspect"
_FOR_MOST_DEATHS = (
    *(f"{_INSPECT}.{name}" for name in ("library_call", "python_objects", "source_lines", "unmapped_memory")),
    *("necropsy.formats.log", "necropsy.formats.op_abi"),
)
"""What most deaths of Python programs need, and few others."""


def warming() -> Iterator[None]:
    """Get ready what is needed only by most deaths, for who has nothing else to do; never raises."""
    for name in _FOR_MOST_DEATHS:
        yield
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    yield
    with contextlib.suppress(Exception):
        messages_of("any")  # reads the table of phrases
    yield
    with contextlib.suppress(Exception):
        from necropsy import redact

        # The command's environment is much the same, and it is masked in the core.
        redact.variables(os.environ)
    yield
    with contextlib.suppress(Exception):
        from necropsy.secrets.forms import forms

        for form in itertools.chain(*forms()):
            _ = form.pattern  # memory is full of what looks like one
            yield


def preload() -> None:
    """Load all of it at once. Never raises."""
    for _ in loading():
        pass
    symbols.demangle("_Z1fv")


class Preloader:
    """Loads one piece after the other while nothing else is to be done."""

    def __init__(self, pieces: Iterator[object]) -> None:
        """Each step of ``pieces`` loads one; in short runs only the first, and those after a step that yields true."""
        self._pieces: Iterator[object] | None = pieces
        self._start = time.monotonic()
        self._after = min(SOON_S, AFTER_S)
        self._hurries = False

    @property
    def wait_s(self) -> float | None:
        """How long nothing must happen before ``step`` is called; None where all is loaded."""
        if self._pieces is None:
            return None
        return 0.0 if self._hurries else max(self._start + self._after - time.monotonic(), QUIET_S)

    def hurry(self) -> None:
        """A death is being read by another process: all is loaded meanwhile."""
        self._hurries = True

    def step(self) -> None:
        """Load the next piece, if it is time to."""
        if self._pieces is None or not (self._hurries or time.monotonic() >= self._start + self._after):
            return
        try:
            soon = next(self._pieces)
        except StopIteration:
            self._pieces = None
        else:
            self._after = min(SOON_S, AFTER_S) if soon else AFTER_S
