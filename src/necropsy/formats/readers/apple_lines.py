"""Single lines that only macOS writes: its loader's, its malloc's, and bash's words for a signal with its number."""

from __future__ import annotations

import re
from collections.abc import Sequence

from necropsy.formats import apple_loader
from necropsy.formats.lines import Line
from necropsy.formats.text_reports import TextReader, TextReport
from necropsy.model import Crash, Environment, Exit, Message

KIND = "apple-lines"
_WIDEST = 2000
_MORE = 8
"""Lines that belong to one message of the loader."""

_REFUSED = re.compile(r"(?:^|\s)dyld(?:\[\d{1,10}\])?: ")
_GOES_ON = re.compile(r"\s{0,8}(?:Referenced from|Expected in|Reason|in): ?|\s{1,8}(?:tried: |')")
_MALLOC = re.compile(r"(?P<program>[\w.+-]{1,60})\((?P<pid>\d{1,10}),0x[0-9a-f]{1,16}\) malloc: (?P<what>.{1,400})")
_SHELL = re.compile(
    r"(?P<text>(?P<words>Illegal instruction|Abort trap|Segmentation fault|Bus error|Killed|Trace/BPT trap|"
    r"Floating point exception|Bad system call): (?P<number>\d{1,2}))(?=\s|$)"
)
_SIGNALS = {
    "Illegal instruction": ("SIGILL", 4),
    "Trace/BPT trap": ("SIGTRAP", 5),
    "Abort trap": ("SIGABRT", 6),
    "Floating point exception": ("SIGFPE", 8),
    "Killed": ("SIGKILL", 9),
    "Bus error": ("SIGBUS", 10),
    "Segmentation fault": ("SIGSEGV", 11),
    "Bad system call": ("SIGSYS", 12),
}
"""Words of strsignal(3) on macOS with macOS' numbers: they differ from Linux' for SIGBUS and SIGSYS."""


def read(lines: Sequence[Line], index: int) -> TextReport | None:
    """What the line at ``index`` and those that belong to it say."""
    text = lines[index].text[:_WIDEST]
    if match := _MALLOC.search(text):
        return _malloc(lines[index], match)
    if "dyld" in text or "dlopen(" in text or "ymbol not found" in text or "Library not loaded" in text:
        return _loader(lines, index)
    match = _SHELL.search(text)
    if match is None or text.lstrip().startswith("Termination"):
        return None
    signal, number = _SIGNALS[match["words"]]
    if int(match["number"]) != number:
        return None
    end = Exit(kind="signaled", signal=signal, text=match["text"])
    crash = Crash(exit=end, environment=Environment(platform="macOS"))
    return TextReport(KIND, lines[index].number, lines[index].number, crash)


def _malloc(line: Line, match: re.Match[str]) -> TextReport | None:
    kind = apple_loader.kind_of(match["what"])
    if kind is None:
        return None
    message = Message(
        kind=kind,
        text=line.text.strip()[:400],
        where=f"log line {line.number}",
        line=line.number,
        fields={"what": match["what"], "program": match["program"]},
    )
    crash = Crash(pid=int(match["pid"]), messages=(message,), environment=Environment(platform="macOS"))
    return TextReport(KIND, line.number, line.number, crash)


def _loader(lines: Sequence[Line], index: int) -> TextReport | None:
    last = index
    while last + 1 < len(lines) and last - index < _MORE and _GOES_ON.match(lines[last + 1].text[:_WIDEST]):
        last += 1
    rows = [line.text[:_WIDEST] for line in lines[index : last + 1]]
    line = lines[index]
    refused = _REFUSED.search(rows[0]) is not None
    found = apple_loader.messages("\n".join(rows), f"log line {line.number}", line.number, refused=refused)
    if not found or not (refused or "dlopen(" in rows[0]):
        return None
    # The whole first line, so that a traceback that quotes it is known to mean the same.
    own = tuple(
        Message(kind=one.kind, text=rows[0].strip()[:1000], where=one.where, line=one.line, fields=one.fields)
        for one in found
    )
    crash = Crash(messages=own, environment=Environment(platform="macOS"))
    return TextReport(KIND, line.number, lines[last].number, crash)


READER = TextReader(
    kind=KIND,
    triggers=(
        ": Library not loaded: ",
        "ymbol not found: ",
        "symbol not found in flat namespace",
        "incompatible architecture (have",
        ") malloc: *** ",
        *(f"{words}: {number}" for words, (_, number) in _SIGNALS.items()),
    ),
    read=read,
    reach=_MORE,
)
