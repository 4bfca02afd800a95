"""A thread's calls as lines of a page: what is its own, what is a library's and folded away, what repeats."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from necropsy.model import Fold, Frame, Thread
from necropsy.reports import stack
from necropsy.reports.terminal import clean, size

_LONGEST, _WHOLE, _COLUMNS = 300, 5000, 72
_FEW_LINES, _FEWEST_FOLDED, _INNERMOST = 16, 4, 3
_STEPS = 6
_LOOP_HEAD = "\N{BOX DRAWINGS LIGHT DOWN AND RIGHT}\N{BLACK RIGHT-POINTING TRIANGLE}"
_LOOP = {
    "|": "\N{BOX DRAWINGS LIGHT VERTICAL} ",
    "+-": "\N{BOX DRAWINGS LIGHT UP AND RIGHT}\N{BOX DRAWINGS LIGHT HORIZONTAL}",
}
"""Arrows from a recursion's last line back to its first."""
_PACKAGE = re.compile(r"[/\\](?:site|dist)-packages[/\\]([^/\\]+)")
_SYSTEM = re.compile(
    r"^(?:libc|libm|libpthread|libdl|ld-linux-x86-64|libstdc\+\+|libgcc_s)\.so|^(?:ntdll|kernel32)\.dll$", re.IGNORECASE
)
_STANDARD = re.compile(r"[/\\](?:lib|Lib)(?:[/\\]python3[\d.t]*)?[/\\][\w./\\]+\.py:|^<frozen ")


@dataclass(frozen=True)
class CallLine:
    """One line of a stack's list; ``anchor`` is the target of links, ``whole`` the full name.

    ``frames``: number of calls it represents. ``code``: the source line. ``own``: the user's code.
    """

    mark: str
    name: str
    whole: str
    place: str
    kind: str
    anchor: str | None
    locals: tuple[str, ...] = ()
    frames: int = 1
    code: str | None = None
    own: bool = False

    @property
    def looped(self) -> bool:
        """It is one of the calls of a recursion, and not the last line of it, which counts them."""
        return self.mark in {_LOOP_HEAD, _LOOP["|"]}


@dataclass(frozen=True)
class CallPart:
    """Lines that are shown, or that are folded away under a ``title``."""

    lines: tuple[CallLine, ...]
    title: str | None = None


@dataclass(frozen=True)
class Cycle:
    """Repeating calls in order, with places; ``more`` are not shown, ``each`` is the stack per turn in words."""

    steps: tuple[tuple[str, str], ...]
    more: int
    times: int
    each: str | None


def lines(thread: Thread, key: str | None, blamed: str | None = None) -> tuple[CallLine, ...]:
    """The lines of a stack, innermost first. Their anchors begin with ``key``; with None they have none."""
    made: list[CallLine] = []
    known: set[str] = set()
    for row in stack.rows_of(thread, blamed):
        name, *variables = row.name.split("\n")
        anchor = None
        if key is not None and row.index is not None:
            anchor = f"{key}{'p' if row.kind == 'python' else 'f'}{row.index}"
            anchor = None if anchor in known else anchor
            known.add(anchor or "")
        whole = name[:_LONGEST].replace("  ", ", ")
        shown = whole if row.kind in {"python", "times"} else stack.fit_name(clean(name[:_WHOLE]), _COLUMNS)
        mark = _LOOP.get(row.mark, row.mark)
        if row.mark == "|" and not (made and made[-1].looped):
            mark = _LOOP_HEAD
        line = CallLine(
            mark, shown, whole, row.place, row.kind, anchor, tuple(variables), row.frames, row.code, row.own
        )
        made.append(line)
    return tuple(made)


def parts(made: Sequence[CallLine], own: Collection[str], linked: Collection[str | None]) -> tuple[CallPart, ...]:
    """Fold long runs of foreign calls, but never in files ``own`` (the culprit's) or at anchors ``linked``."""
    if len(made) <= _FEW_LINES:
        return (CallPart(tuple(made)),)
    found: list[CallPart] = []
    shown: list[CallLine] = []
    run: list[CallLine] = []

    def close() -> None:
        nonlocal shown, run
        if len(run) >= _FEWEST_FOLDED:
            if shown:
                found.append(CallPart(tuple(shown)))
            found.append(CallPart(tuple(run), _title(run)))
            shown, run = [], []
        else:
            shown += run
            run = []

    for place, line in enumerate(made):
        if place >= _INNERMOST and _foreign(line, own) and (line.anchor is None or line.anchor not in linked):
            run.append(line)
        else:
            close()
            shown.append(line)
    close()
    return (*found, CallPart(tuple(shown))) if shown else tuple(found)


def _foreign(line: CallLine, own: Collection[str]) -> bool:
    """A call of a library, the system or the interpreter; any other with known source is the user's."""
    if line.own:
        return False
    if line.kind == "python":
        return bool(_PACKAGE.search(line.whole) or _STANDARD.search(line.whole))
    module, _, source = line.place.partition("  ")
    if line.kind not in {"native", "quiet"} or module in own:
        return False
    systems = _SYSTEM.search(module) is not None or stack.is_interpreter(Frame(index=0, kind="native", module=module))
    return not source or systems


def _title(run: Sequence[CallLine]) -> str:
    python = [line for line in run if line.kind == "python"]
    calls = sum(line.frames for line in run if line.kind != "python")
    counted = [f"{calls:,} call{'s' if calls != 1 else ''}"] if calls else []
    counted += [f"{len(python)} line{'s' if len(python) != 1 else ''} of Python"] if python else []
    homes = list(dict.fromkeys(home for line in run if (home := _home(line))))
    more = f" and {len(homes) - 3} more" if len(homes) > 3 else ""
    return " and ".join(counted) + (f" in {', '.join(homes[:3])}{more}" if homes else "")


def _home(line: CallLine) -> str:
    if line.kind != "python":
        return line.place.partition("  ")[0]
    package = _PACKAGE.search(line.whole)
    return package[1] if package else "the standard library"


def cycle(thread: Thread) -> Cycle | None:
    """The recursion that takes the most of the stack; None where nothing repeats."""
    if not thread.folds:
        return None
    fold = max(thread.folds, key=lambda one: (one.bytes_per_period or 0.0) * one.times)
    steps = _steps(thread, fold)
    return Cycle(
        steps=tuple(steps[:_STEPS]),
        more=max(0, len(steps) - _STEPS),
        times=fold.times,
        each=size(fold.bytes_per_period) if fold.bytes_per_period else None,
    )


def _steps(thread: Thread, fold: Fold) -> list[tuple[str, str]]:
    """Python lines or native functions, outermost first."""
    if fold.python:
        return [(frame.function or "(no name)", stack.place_of(frame)) for frame in reversed(fold.python)]
    modules = fold.modules or (None,) * len(fold.functions)
    kept = {frame.function: frame for frame in reversed(thread.frames or ())}
    frames = [
        kept.get(function) or Frame(index=0, kind="native", function=function, module=module)
        for function, module in zip(fold.functions, modules, strict=False)
    ]
    foreign = [frame for frame in frames if not stack.is_interpreter(frame)] or frames
    return [
        (stack.fit_name(clean((frame.function or "(no name)")[:_WHOLE]), _COLUMNS), stack.place_of(frame))
        for frame in reversed(foreign)
    ]
