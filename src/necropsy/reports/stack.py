"""The crashed thread's stack as text: folded, to scale, with the lines of Python at the frames that run them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from necropsy.model import Fold, Frame, Stack, Thread
from necropsy.reports.terminal import BOLD, CYAN, DIM, Pen, bar, clean, columns, cut, cut_path, file_name, size

FIRST, LAST, MORE = 18, 10, 6
"""Rows shown at the inner and outer end; those between are counted if there are more than ``MORE``."""

_INTERPRETER = re.compile(
    r"(?:libpython3[\w.]*\.so|python3?(?:\.\d+)?$|_ctypes\.|libffi|python3\d*(?:_d)?\.dll$|pythonw?\.exe$)"
)
GUESSED = "found by a search: may be left over from an earlier call"


@dataclass(frozen=True)
class StackRow:
    """One line of the drawing; ``frames``: number of frames it represents.

    ``index``: of the innermost frame, or of a Python frame; None for notes. ``code``: a Python frame's source line;
    ``own``: the user's code.
    """

    mark: str
    name: str
    place: str = ""
    kind: str = "native"
    frames: int = 1
    index: int | None = None
    code: str | None = None
    own: bool = False


def draw(thread: Thread, width: int, pen: Pen, culprit: str | None = None) -> list[str]:
    """The drawing's lines, innermost frame first; empty without frames or bounds. ``culprit`` is never left out."""
    lines = _bar(thread.stack, width, pen) if thread.stack else []
    rows = rows_of(thread, culprit)
    if len(rows) > FIRST + LAST + MORE:
        left_out = rows[FIRST:-LAST]
        count = sum(row.frames for row in left_out)
        python = [row for row in left_out if row.kind == "python"][:6]
        note = StackRow("", f"... {count:,} more frames (--json keeps them)", kind="note")
        rows = [*rows[:FIRST], note, *python, *rows[-LAST:]]
    marks = max((len(row.mark) for row in rows), default=0)
    lines += [_line(row, marks, width, pen) for row in rows]
    if thread.complete is False:
        lines.append(pen(f"  ... {not_read(thread)}", DIM))
    return lines


def not_read(thread: Thread) -> str:
    """What is missing of a stack that is not complete."""
    if thread.frames_estimate is None:
        return "the rest of the stack could not be read"
    read = f"; {thread.frames_total:,} of them were read" if thread.frames_total is not None else ""
    return f"the stack has {estimated(thread.frames_estimate)}{read}"


def estimated(frames: int) -> str:
    """How many frames a stack has that was not read to its end."""
    return f"about {frames:,} frames (estimated)"


def _bar(stack: Stack, width: int, pen: Pen) -> list[str]:
    if not stack.size or stack.used is None:
        return []
    full = stack.guard_hit
    used = stack.size if full else stack.used
    text = f" {'full: ' if full else ''}{size(stack.used)} of {size(stack.size)} used"
    if full and size(stack.used) != size(stack.size) and stack.used > stack.size:
        text = f" full: {size(stack.used)} wanted of {size(stack.size)}"
    return [f"  {pen(bar(used, stack.size, max(12, width - 4 - len(text))), BOLD if full else DIM)}{text}"]


def rows_of(thread: Thread, culprit: str | None = None) -> list[StackRow]:
    """Every row: frames, folds in their place, Python lines at the native frames that evaluate them."""
    frames = thread.frames
    python = thread.python or ()
    if frames is None:
        return [_python_row(frame) for frame in python]
    joined: dict[int, list[Frame]] = {}
    for frame in python:
        if frame.evaluated_by is not None:
            joined.setdefault(frame.evaluated_by, []).append(frame)
    folds = sorted((fold for fold in thread.folds if fold.start is not None), key=lambda fold: fold.start or 0)
    rows: list[StackRow] = []
    for fold in thread.folds:
        if fold.start is None:
            rows += _fold_rows(fold, ())
    rest = list(frames)
    for fold in folds:
        start = fold.start or 0
        before = [frame for frame in rest if frame.index < start]
        rows += _frame_rows(before, joined, culprit)
        inside, rest = _split(rest[len(before) :], fold)
        if _only_evaluates(fold, inside) and any(frame.index in joined for frame in inside):
            rows += _frame_rows(inside, joined, culprit)
            continue
        rows += _fold_rows(fold, inside)
        if not fold.python:
            rows += map(_python_row, [line for frame in inside for line in joined.get(frame.index, ())][:8])
    rows += _frame_rows(rest, joined, culprit)
    if any(frame.found_by == "scan" for frame in frames):
        rows.append(StackRow("?", GUESSED, kind="note", frames=0))
    if not joined and python:
        # Nobody could say which native frame runs which line: they are told apart, not mixed by guessing.
        rows += [
            StackRow("", "the lines of Python, innermost first:", kind="note", frames=0),
            *map(_python_row, python),
        ]
    return rows


def _only_evaluates(fold: Fold, inside: Sequence[Frame]) -> bool:
    """Different Python lines evaluated by the interpreter's own calls, which is not a recursion."""
    whole = len(inside) >= fold.period * fold.times
    return whole and not fold.python and all(map(is_interpreter, inside))


def _split(frames: list[Frame], fold: Fold) -> tuple[list[Frame], list[Frame]]:
    """The frames that the fold represents, and those behind it."""
    end = (fold.start or 0) + fold.period * fold.times
    names = set(fold.functions)
    place = 0
    # A recursion may hold breaks (a garbage collection), so that it ends later than its periods say.
    while place < len(frames) and (frames[place].index < end or frames[place].function in names):
        place += 1
    return frames[:place], frames[place:]


def _fold_rows(fold: Fold, inside: Sequence[Frame]) -> list[StackRow]:
    modules = fold.modules or (None,) * len(fold.functions)
    kept = {frame.function: frame for frame in reversed(inside)}
    each = f"  {size(fold.bytes_per_period)} each" if fold.bytes_per_period else ""
    foreign = any(not is_interpreter(Frame(index=0, kind="native", module=module)) for module in modules)
    rows: list[StackRow] = []
    quiet = 0
    for function, module in zip(fold.functions, modules, strict=False):
        frame = kept.get(function) or Frame(index=fold.start or 0, kind="native", function=function, module=module)
        if is_interpreter(frame) and len(fold.functions) > 6 and (foreign or len(rows) >= 4):
            quiet += 1
            continue
        name = frame.function or "(no name)"
        rows.append(StackRow("|", name, place_of(frame), kind="fold", frames=0, index=fold.start))
    if quiet:
        rows.append(
            StackRow("|", f"and {quiet} frame{'s' if quiet > 1 else ''} of the interpreter", kind="note", frames=0)
        )
    rows += [
        StackRow("|", _python_name(frame), kind="python", frames=0, index=frame.index) for frame in fold.python[:8]
    ]
    rows.append(StackRow("+-", f"x {fold.times:,}{each}", kind="times", frames=fold.period * fold.times))
    return rows


def _frame_rows(frames: Sequence[Frame], joined: dict[int, list[Frame]], culprit: str | None) -> list[StackRow]:
    rows: list[StackRow] = []
    quiet: list[Frame] = []
    last = None
    for frame in frames:
        if last is not None and frame.index > last + 1:
            rows += _quiet(quiet)
            quiet = []
            count = frame.index - last - 1
            rows.append(StackRow("", f"... {count:,} frames that were not kept", kind="note", frames=count))
        last = frame.index
        lines = joined.get(frame.index, ())
        if is_interpreter(frame) and rows and (culprit is None or frame.function != culprit):
            quiet.append(frame)
        else:
            rows += _quiet(quiet)
            quiet = []
            name = frame.function or _unnamed(frame)
            guess = "?" if frame.found_by == "scan" else ""
            rows.append(StackRow(f"#{frame.index}{guess}", name, place_of(frame), index=frame.index))
        if lines:
            rows += _quiet(quiet)
            quiet = []
            rows += map(_python_row, lines)
    return rows + _quiet(quiet)


def _quiet(frames: Sequence[Frame]) -> list[StackRow]:
    """Count the interpreter's own frames, which do not help a program's author."""
    if not frames:
        return []
    if len(frames) == 1:
        name = frames[0].function or _unnamed(frames[0])
        return [StackRow(f"#{frames[0].index}", name, place_of(frames[0]), kind="quiet", index=frames[0].index)]
    what = f"{len(frames)} frames of the interpreter"
    return [StackRow(f"#{frames[0].index}", what, kind="quiet", frames=len(frames), index=frames[0].index)]


def _python_row(frame: Frame) -> StackRow:
    return StackRow(
        "py",
        _python_name(frame),
        kind="python",
        frames=0,
        index=frame.index,
        code=frame.code,
        own=frame.owner == "script",
    )


def _python_name(frame: Frame) -> str:
    line = f":{frame.line}" if frame.line is not None else ""
    shown = f"{frame.source or '?'}{line}"
    name = f"{shown} in {frame.function}" if frame.function else shown
    for key, value in (frame.locals or {}).items():
        name += f"\n{key} = {value}"
    return name


def _unnamed(frame: Frame) -> str:
    return f"{frame.address}" if frame.address is not None else "(no name)"


def place_of(frame: Frame) -> str:
    """The file of its code, and the line of its source where that is known, two spaces between them."""
    module = file_name(frame.module) if frame.module else ""
    source = ""
    if frame.source:
        source = file_name(frame.source) + (f":{frame.line}" if frame.line is not None else "")
    return "  ".join(part for part in (module, source) if part)


def is_interpreter(frame: Frame) -> bool:
    """The frame's code belongs to CPython itself, by the name of its file."""
    return bool(frame.module and _INTERPRETER.search(file_name(frame.module)))


def _line(row: StackRow, marks: int, width: int, pen: Pen) -> str:
    start = f"  {row.mark:<{marks}} "
    room = width - columns(start)
    if row.kind == "python":
        first, *local_variables = row.name.split("\n")
        lines = [start + pen(cut_path(clean(first), room), CYAN)]
        lines += [" " * len(start) + "  " + pen(cut(clean(one), room - 2), DIM) for one in local_variables]
        return "\n".join(lines)
    if row.kind in {"note", "quiet", "times"}:
        text = row.name if not row.place else f"{row.name}  {row.place}"
        return start + pen(cut(clean(text), room), BOLD if row.kind == "times" else DIM)
    place = cut(clean(row.place), room // 2)
    name = fit_name(clean(row.name), room - (columns(place) + 2 if place else 0))
    return start + name + (f"  {pen(place, DIM)}" if place else "")


def fit_name(name: str, width: int) -> str:
    """A C++ name in ``width`` columns: first go the parameters, then template arguments, last the outer namespaces."""
    if columns(name) <= width:
        return name
    shorter = _drop(name, "(", ")")
    if columns(shorter) > width:
        shorter = _drop(shorter, "<", ">")
    if columns(shorter) > width:
        shorter = shorter.removesuffix(" const").removesuffix("(...)")
    while columns(shorter) > width and "::" in shorter and not shorter.endswith("::"):
        shorter = "..." + shorter.removeprefix("...").split("::", 1)[1]
    return cut(shorter, width)


def _drop(name: str, opening: str, closing: str) -> str:
    """Replace the outermost brackets' contents by dots, except in ``(anonymous namespace)``."""
    kept, depth = [], 0
    place = 0
    while place < len(name):
        char = name[place]
        if depth == 0 and name.startswith("(anonymous namespace)", place):
            kept.append("(anonymous namespace)")
            place += len("(anonymous namespace)")
            continue
        if char == opening and not name.startswith("operator", max(0, place - 8), place):
            if depth == 0:
                kept.append(opening + "...")
            depth += 1
        elif char == closing and depth:
            depth -= 1
        if depth == 0:
            kept.append(char)
        place += 1
    return "".join(kept)
