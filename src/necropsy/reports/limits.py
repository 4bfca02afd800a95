"""The smallest limits with which a command still works, for a terminal: the lines that set them."""

from __future__ import annotations

from necropsy.model import Document, SmallestLimit
from necropsy.reports.terminal import BOLD, Pen, clean, one_line, size, without_commands, wrap

_WHAT = {"RLIMIT_STACK": ("s", "of stack"), "RLIMIT_AS": ("v", "of address space")}


def render(document: Document, runs: int, *, same_output: bool, color: bool = False, width: int = 80) -> str:
    """What was found, in how many runs."""
    pen = Pen(color=color)
    found = document.smallest_limits or ()
    command = one_line(document.subject.command or ("the command",), 100)
    first, *rest = wrap(f"{command} still works with", width, first="necropsy: ", rest="  ")
    lines = ["", pen(first, BOLD), *rest] if found else [""]
    for one in found:
        lines += _limit(one, width, pen)
    if found:
        spare = "; ".join(line(one, one.spare) for one in found)
        lines += wrap(f"With a quarter to spare: {spare}", width, first="  ", rest="    ")
    what = "exits with code 0 and writes the same to stdout" if same_output else "exits with code 0"
    if not same_output:
        what += " (what it writes to stdout differs from run to run)"
    lines += wrap(f"{runs} runs. It works if it {what}.", width, first="  ", rest="    ")
    resident = max((one.peak_rss or 0 for one in document.processes), default=0)
    if resident:
        text = f"Resident memory was {size(resident)} at most without limits; a limit of a container was not tried"
        lines += wrap(text, width, first="  ", rest="    ")
    for gap in document.gaps:
        lines += wrap(f"not observed: {gap.part}: {gap.why}", width, first="  ", rest="    ")
    return without_commands("\n".join(lines) + "\n")


def line(found: SmallestLimit, octets: int) -> str:
    """The command of a shell that sets it."""
    return f"ulimit -{_WHAT[found.name][0]} {octets >> 10}"


def _limit(one: SmallestLimit, width: int, pen: Pen) -> list[str]:
    text = f"{size(one.bytes)} {_WHAT[one.name][1]}"
    if one.fails_at is not None:
        text += f"; with {size(one.fails_at)} it fails: {clean(one.fails or '')}"
    else:
        text += ", the smallest that was tried"
    return [pen(f"    {line(one, one.bytes)}", BOLD), *wrap(text, width, first="      ")]
