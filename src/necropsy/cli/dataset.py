"""``doctor --data``: check a dataset."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from necropsy.cli.numbers import Seconds, Whole
from necropsy.cli.output import ProgressLine, also_as_json, deliver
from necropsy.console import SLOW_S

if TYPE_CHECKING:
    from necropsy.dataset.journal import Progress

F = TypeVar("F", bound=Callable[..., Any])
_CELLS = 20


def options(command: F) -> F:
    """The options of ``doctor`` that are about a dataset."""
    for option in (
        click.option(
            "--timeout",
            metavar="SECONDS",
            type=Seconds(min=0, min_open=True),
            help="With --data: stop after this time.",
        ),
        click.option("--limit", metavar="N", type=Whole(min=1), help="With --data: check only the first N elements."),
        click.option(
            "--data",
            "target",
            metavar="MODULE:FUNCTION",
            help="Check only the dataset that this function returns. MODULE may be a file.",
        ),
    ):
        command = option(command)
    return command


def check(
    target: str,
    python: str | None,
    *,
    form: str,
    out: Path | None,
    json_file: Path | None,
    limit: int | None,
    timeout: float | None,
) -> int:
    """Check the dataset and show the findings; exit code 1 after an error or a warning.

    Raises ``NoInputError`` (no such interpreter, module or function), ``InputError`` (not a dataset, or empty), or
    ``NecropsyError`` (the walk could not start, or the JSON file not be written).
    """
    from necropsy import validation
    from necropsy.doctor import surroundings
    from necropsy.reports import rendered
    from necropsy.rules import page

    bar = _Bar(target)
    try:
        document = validation.check_target(
            target,
            python or "python",
            limit=limit,
            timeout=timeout,
            watch=bar.walked if bar.wanted else None,
            environment=surroundings.original(os.environ),
        )
    finally:
        bar.wipe()
    with also_as_json(document, json_file):
        deliver(lambda color, width: rendered(document, form, color=color, width=width, pages=page), out)
    return int(any(one.severity != "note" for one in document.findings))


class _Bar(ProgressLine):
    """Progress on the terminal after two seconds; quiet if CI or NO_COLOR is set."""

    def __init__(self, target: str) -> None:
        super().__init__()
        self._target = target
        self._start = time.monotonic()

    def walked(self, progress: Progress) -> None:
        if time.monotonic() - self._start >= SLOW_S:
            self.show(self.line(progress))

    def line(self, progress: Progress) -> str:
        """``data:train [####------] 12,800 of 60,000 elements, 38 MB, 2 kinds of faults``."""
        seen = f"{progress.first:,}"
        drawing = ""
        if progress.total:
            filled = min(_CELLS, progress.first * _CELLS // progress.total)
            drawing = f" [{'#' * filled}{'-' * (_CELLS - filled)}]"
            seen += f" of {progress.total:,}"
        wrong = f", {progress.wrong} kind{'s' if progress.wrong > 1 else ''} of faults" if progress.wrong else ""
        return f"{self._target}{drawing} {seen} elements, {progress.bytes / 1e6:,.0f} MB{wrong}"
