"""What a run took of its stacks, for a terminal: threads by how close they came to the end."""

from __future__ import annotations

from collections.abc import Sequence

from necropsy.model import Diagnosis, Document, Process, ProfileMark, StackUse
from necropsy.reports import comparison, heap, stack_bars
from necropsy.reports.stack_bars import share_of
from necropsy.reports.terminal import (
    BOLD,
    DIM,
    YELLOW,
    Pen,
    clean,
    columns,
    cut,
    cut_path,
    one_line,
    size,
    without_commands,
    wrap,
)
from necropsy.reports.wording import ending

THREADS, CHILDREN = 10, 5
"""Threads of a process, and child processes, that are shown unless more are asked for."""
FUNCTIONS = 5
"""Functions of a thread that are shown."""
_SUBSTANTIAL = 0.1
"""The share of a stack from which on it is shown what filled it."""
STEPS, _LARGE_STEP = 3, 0.1
"""The largest steps of memory that are shown, and the share of the peak from which on."""
_CLOSE = 0.75
"""The share of a stack from which on its row is highlighted."""
_GROWN = 4096
"""Bytes of a frame beyond what the code says, from which on they are mentioned."""
_FIGURES = 46
"""Columns of the figures behind a thread's name."""


def render(document: Document, *, color: bool = False, width: int = 80, top: int = THREADS) -> str:
    """The stacks and the memory of each process; at most ``top`` threads of each."""
    if not document.processes:
        return ""
    pen = Pen(color=color)
    own, *children = document.processes
    lines = ["", *_head(own, width, pen), *_table(own, width, pen, top), *heap.lines(own, width, pen)]
    told = sorted((one for one in children if one.stacks or one.heap), key=_closest, reverse=True)
    for child in told[:CHILDREN]:
        lines += _child(child, width, pen, top)
    if len(told) > CHILDREN:
        lines.append(f"  and {len(told) - CHILDREN} more child processes, none of which came closer")
    for found in document.findings:
        lines += ["", *_finding(found, width, pen)]
    lines += comparison.draw(document, width, pen)
    for gap in document.gaps:
        lines += wrap(f"not observed: {gap.part}: {gap.why}", width, first="  ")
    return without_commands("\n".join(lines) + "\n")


def _finding(found: Diagnosis, width: int, pen: Pen) -> list[str]:
    first, *rest = wrap(f"{found.severity}: {found.summary}", width, first="  ", rest="    ")
    lines = [pen(first, BOLD, *((YELLOW,) if found.severity == "warning" else ())), *rest]
    for fix in found.fixes[:2]:
        lines += wrap(fix.text, width, first="    Fix: ")
        lines += [f"      {clean(fix.command)}"] if fix.command is not None else []
    return [*lines, *wrap(f"More: necropsy rules {found.rule}", width, first="    ")]


def _head(process: Process, width: int, pen: Pen) -> list[str]:
    command = process.command or (f"process {process.pid}",)
    text = f"{one_line(command, 100)} {ending(process.exit) if process.exit is not None else 'ended'}"
    if process.wall_s is not None:
        text += f" after {process.wall_s:.2g} s" if process.wall_s < 1 else f" after {process.wall_s:.1f} s"
    first, *rest = wrap(text + ".", width, first="necropsy: ", rest="  ")
    return [pen(first, BOLD), *rest, *_resources(process, width)]


def _child(process: Process, width: int, pen: Pen, top: int) -> list[str]:
    end = ending(process.exit) if process.exit is not None else "ended"
    text = f"child {process.pid}, {one_line(process.command or ('?',), 60)}: {end}"
    return [
        "",
        *wrap(text, width, first="  ", rest="    "),
        *_resources(process, width),
        *_table(process, width, pen, min(top, 3)),
        *heap.lines(process, width, pen),
    ]


def at_most(process: Process) -> str:
    """The most that it used, in one line; empty where nothing was measured."""
    peaks = process.peaks
    rss = peaks.rss if peaks is not None else process.peak_rss
    if rss is None:
        return ""
    parts = [f"{size(rss)} resident"]
    if peaks is not None:
        parts += [f"{size(peaks.address_space)} of address space"] if peaks.address_space is not None else []
        parts += [f"{size(peaks.gpu)} on GPUs"] if peaks.gpu is not None else []
        counts = ((peaks.threads, "thread"), (peaks.descriptors, "descriptor"), (peaks.mappings, "mapping"))
        parts += [f"{count:,} {what}{'s' if count != 1 else ''}" for count, what in counts if count is not None]
        parts += [f"{size(peaks.python_heap)} for small Python objects"] if peaks.python_heap is not None else []
    return ", ".join(parts)


def _resources(process: Process, width: int) -> list[str]:
    most = at_most(process)
    if not most:
        return []
    peaks = process.peaks
    rss = (peaks.rss if peaks is not None else process.peak_rss) or 0
    return [*wrap(f"At most: {most}", width, first="  ", rest="    "), *_steps(process, rss, width)]


def _steps(process: Process, peak: int, width: int) -> list[str]:
    """The largest rises of memory, by time, and what all processes used together."""
    found = [one for one in process.marks or () if one.kind == "step" and (one.bytes or 0) >= _LARGE_STEP * peak]
    largest = sorted(found, key=lambda one: one.bytes or 0)[-STEPS:]
    lines = ["  Largest rises of memory, and the Python line that was running:"] if largest else []
    for one in sorted(largest, key=lambda one: one.at):
        lines.append(cut(f"    {'+' + size(one.bytes or 0):>9} at {one.at:>6.1f} s  {_line(one, width - 27)}", width))
        lines += [cut(f"{' ' * 10}held {heap.held_in_words(one.arrays)}", width)] if one.arrays else []
    together = max(process.memory_of_tree or (), key=lambda one: one.rss, default=None)
    if together is not None and together.processes > 1:
        text = f"Together with its child processes: {size(together.rss)} resident, in {together.processes} processes;"
        lines += wrap(f"{text} shared pages count in each", width, first="  ", rest="    ")
    return lines


def _line(mark: ProfileMark, width: int) -> str:
    place = mark.python
    if place is None or place.file is None:
        return "not known"
    end = f":{place.line}{f' in {clean(place.function)}' if place.function else ''}"
    return cut_path(clean(place.file), max(width - columns(end), 20)) + end


def _table(process: Process, width: int, pen: Pen, top: int) -> list[str]:
    stacks = process.stacks or ()
    if not stacks:
        return ["  no stack was measured"]
    groups = stack_bars.pools(stacks)
    rows = [(clean(f"{name} x{len(pool)}" if len(pool) > 1 else name), pool[0]) for name, pool in groups]
    shown, rest = rows[:top], [one for _, pool in groups[top:] for one in pool]
    names = max(6, min(max(columns(name) for name, _ in shown), width - _FIGURES))
    lines = [pen(cut(f"  {'thread':<{names}}  {'stack':>9}  {'used at most':>15}  {'left':>8}  set by", width), DIM)]
    for name, one in shown:
        row = cut(_row(name, one, names).rstrip(), width)
        lines.append(pen(row, YELLOW) if share_of(one) >= _CLOSE else row)
        if one.inherited is not None and one.peak is None:
            text = f"no more than the {size(one.inherited)} that it has from the process that forked it"
            lines += wrap(text, width, first="    ")
    if rest:
        peaks = [one.peak for one in rest if one.peak is not None]
        most = f", at most {size(max(peaks))} of a stack" if peaks else ""
        lines += wrap(f"and {len(rest)} more thread{'s' if len(rest) > 1 else ''}{most}", width, first="  ")
    return lines + _filled_by(stacks, width, pen) + _elsewhere(stacks, width)


def _filled_by(stacks: Sequence[StackUse], width: int, pen: Pen) -> list[str]:
    """Of the thread that came closest, the functions with the most bytes, if it took a substantial part."""
    one = next((one for one in stacks if one.functions and share_of(one) >= _SUBSTANTIAL), None)
    if one is None or one.functions is None or not one.peak:
        return []
    seen = one.functions[0].how == "seen"
    how = "seen while it ran" if seen else "from the return addresses that its calls left there"
    title = f"What filled the stack of {_name(one)}, {how}"
    lines = [pen(line, DIM) for line in wrap(title, width, first="  ", rest="  ")]
    for row in [row for row in one.functions if row.bytes >= one.peak / 100][:FUNCTIONS]:
        function = clean(row.function or "a function without a name")
        where = f" ({clean(row.module)})" if row.module else ""
        if row.file:
            function, where = f"{clean(row.file.rpartition('/')[2])}:{row.line or '?'} {function}", ""
        figures = f"    {size(row.bytes):>9} {row.bytes / one.peak:>6.1%}  {row.times:>7,} x {size(row.frame_bytes):<9}"
        lines.append(cut(f"{figures} {function}{where}{', partial' if row.partial else ''}", width))
        if row.static_bytes is not None and row.frame_bytes - row.static_bytes > _GROWN:
            text = (
                f"its code takes {size(row.static_bytes)}, the rest was added as it ran (alloca, variable-length array)"
            )
            lines += wrap(text, width, first=" " * 8, rest=" " * 8)
    unknown = one.peak - sum(row.bytes for row in one.functions)
    if unknown > one.peak / 10:
        text = f"{size(unknown)} ({unknown / one.peak:.0%}) not explained: a large local array, or calls that"
        lines += wrap(f"{text} later ones have overwritten", width, first="    ")
    return lines


def _row(name: str, stack: StackUse, names: int) -> str:
    name = cut(name, names)
    whole = size(stack.size) if stack.size is not None else "no limit" if stack.set_by == "ulimit -s" else "unknown"
    used, left = "unknown", ""
    if stack.peak is not None:
        used = f"{'' if stack.exact else '>= '}{size(stack.peak)}"
        if stack.size:
            used += f" {share_of(stack):>5.1%}"
            left = size(max(stack.size - stack.peak, 0))
    by = stack.set_by or ""
    return f"  {name}{' ' * (names - columns(name))}  {whole:>9}  {used:>15}  {left:>8}  {by}"


def _elsewhere(stacks: Sequence[StackUse], width: int) -> list[str]:
    """One line for each other system, largest stack first: which threads would not fit there."""
    tight: dict[tuple[int, str], list[StackUse]] = {}
    for one in stacks:
        for other in one.would_not_fit or ():
            tight.setdefault((other.bytes, other.where), []).append(one)
    lines: list[str] = []
    for (octets, where), unfit in sorted(tight.items(), reverse=True):
        worst = max(unfit, key=lambda one: one.peak or 0)
        said = f"{_name(worst)} used {worst.peak:,} bytes"
        if len(unfit) > 1:
            said += f"; nor would {len(unfit) - 1} other{'s' if len(unfit) > 2 else ''}"
        lines += wrap(f"Would not fit into {octets:,} bytes, as on {where}: {said}.", width, first="  ", rest="    ")
    return lines


def _name(stack: StackUse) -> str:
    return clean(stack_bars.name_of(stack))


def _closest(process: Process) -> float:
    return max((share_of(one) for one in process.stacks or ()), default=0.0)
