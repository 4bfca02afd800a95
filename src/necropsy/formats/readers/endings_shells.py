"""The line in which a shell says by which signal its command ended, in any language of glibc.

Measured with bash 5.2 in seven languages, dash, ksh93, zsh 5.9 and tcsh; macOS' form (``Segmentation fault: 11``) and
that of jobs (``[1]+  Aborted``) are in bash's jobs.c and zsh's Src/jobs.c. The words are glibc's strsignal(3).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from necropsy.formats.exit_phrases import dead, sentence
from necropsy.formats.exit_status import signal_name, signal_number
from necropsy.formats.lines import Line
from necropsy.formats.statuses import foreign_words, signals
from necropsy.formats.text_reports import TextReader, TextReport
from necropsy.lazy_re import regex
from necropsy.model import Exit

KIND = "ending"
_CRASHES = frozenset({"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGTRAP", "SIGSYS", "SIGXCPU", "SIGXFSZ"})
_LEAVE_CORES = _CRASHES | {"SIGABRT", "SIGQUIT"}
_SAID_ALONE = frozenset({"Aborted", "Killed", "Terminated", "Alarm clock", "Abort trap"})
"""Other words are the program's own too often to count where nothing stands beside them."""
_ZSH = {
    "segmentation fault": 11,
    "abort": 6,
    "IOT instruction": 6,
    "killed": 9,
    "bus error": 7,
    "illegal hardware instruction": 4,
    "floating point exception": 8,
    "trace trap": 5,
    "terminated": 15,
    "invalid system call": 31,
}
"""zsh's own words (Src/signames2.awk); IOT is Linux' second name of SIGABRT."""
_OTHERS = {"Memory fault": 11, "Floating exception": 8, "Abort": 6}
"""ksh93's own words (sh/data/signals.c), tcsh's too."""


def _words() -> Iterator[str]:
    for entry in signals().values():
        yield from entry.texts
    for spellings in foreign_words().values():
        yield from spellings


_ALL = sorted({word for word in _words() if "EXC_" not in word and word != "Segfault"}, key=len, reverse=True)
_ANY = "|".join(map(re.escape, [*_ALL, *_OTHERS]))
_CORE = r"\s{0,60}[(\uff08][^()\uff08\uff09]{2,60}[)\uff09]"
_ENDS = r"(?=[\s(\uff08]|$)"
# A process number of one digit is one of a container's; bash fills it up to five places, where prose does not.
_WITH_PID = regex(
    r"(?:^|[:\uff1a]\s{0,8}|^\[\d{1,4}\][ +-]{1,4}\s{0,8})"
    rf"(?P<pid>\d{{2,8}}|(?<=:     )\d)[: ]\s{{0,8}}(?P<word>{_ANY})(?::\s\d{{1,2}})?(?!\w)"
)
_OF_JOB = regex(rf"\[\d{{1,4}}\][ +-]\s{{1,8}}(?P<word>{_ANY})(?::\s\d{{1,2}})?{_ENDS}")
_ALONE = regex(rf"(?P<word>{_ANY})(?P<number>:\s\d{{1,2}})?(?P<core>{_CORE})?(?P<rest>.*)")
_OF_ZSH = regex(rf"(?:zsh: |\[\d{{1,4}}\]\s{{2}}[ +-]?\s{{0,4}}(?P<pid>\d{{2,8}}) )(?P<word>{'|'.join(_ZSH)}){_ENDS}")
_TRIGGERS = (
    *(word for word in _ALL if len(word) > 2),
    *(word for word in _ZSH if len(word) > 9),
    *(
        "zsh: ",
        "Abort (core",
        ": Abort",
        "Abort(core",
        "Memory fault",
        "Floating exception",
        "\u30b3\u30a2\u30c0\u30f3\u30d7",
        "\u6838\u5fc3\u5df2",
    ),
)
"""The last two are how bash says in Japanese and Chinese that a core was left: the words before are very short."""


def _read(lines: Sequence[Line], index: int) -> TextReport | None:
    line = lines[index]
    text = line.text.strip()
    if match := _OF_ZSH.match(text):
        return _piece(line, match, _ZSH[match["word"]], match["pid"])
    if match := _WITH_PID.search(text[:400]):
        return _piece(line, match, _number(match["word"]), match["pid"])
    if match := _OF_JOB.match(text):
        return _piece(line, match, _number(match["word"]), None)
    if (match := _ALONE.match(text)) and _is_said_alone(match):
        return _piece(line, match, _number(match["word"]), None)
    return None


def _is_said_alone(match: re.Match[str]) -> bool:
    """The whole line is the shell's: the word, macOS' number, that a core was left, and at most the command."""
    word = match["word"]
    if match["core"]:
        # `Killed (see above)` is no shell's: only who crashes leaves a core.
        return _signal(word) in _LEAVE_CORES
    if match["rest"].strip() or word == "Abort":
        return False
    return word in _SAID_ALONE or _signal(word) in _CRASHES or match["number"] is not None


def _signal(word: str) -> str:
    number = _number(word)
    return signal_name(number) if number is not None else ""


def _number(word: str) -> int | None:
    return _OTHERS.get(word) or signal_number(word)


def _piece(line: Line, match: re.Match[str], number: int | None, pid: str | None) -> TextReport | None:
    if number is None:
        return None
    end = Exit(kind="signaled", signal=signal_name(number), text=sentence(line.text, match))
    return TextReport(KIND, line.number, line.number, dead(end, pid=int(pid) if pid else None))


READER = TextReader(KIND, tuple(dict.fromkeys(_TRIGGERS)), _read, reach=0)
