"""The program's own last words: what it wrote directly before it died, for the deaths that no rule knows."""

from __future__ import annotations

from necropsy.lazy_re import regex
from necropsy.model import Crash, Evidence, LastWords
from necropsy.rule import Found

_MOST_LINES = 6
"""Lines of the last paragraph that are quoted; of a longer one, which is a log without paragraphs, only the last few."""
_OF_A_LONG_ONE = 3
_LONGEST_LINE = 400
_IN_A_SENTENCE = 240
"""Characters of it that a summary repeats."""
_PARAGRAPHS = 8
"""Paragraphs that may be a stack or a list of modules, and are passed over."""
_BELOW = regex(
    # faulthandler's own dump, Go's and Rust's stacks, glibc's, and what a shell or its core handler says afterwards.
    r"Fatal Python error: (?:Segmentation fault|Aborted|Bus error|Illegal instruction|Floating[- ]point exception)$"
    r"|(?:Current thread|Thread) 0x[0-9a-f]+|Current thread's C stack trace|Extension modules: |<no Python frame>"
    r"|\s+File \"[^\"]*\", line \d+|\s*Binary file \"|\s*\.\.\.$"
    r"|goroutine \d+ |\s*(?:main|runtime|\w[\w./]*)\.[\w.()*]+\(.*\)$|\t\S|exit status \d+$"
    r"|(?:thread '.*' panicked at )?stack backtrace:$|note: (?:run with|Some details)|\s*\d+: +(?:0x)?\w|\s+at \S+"
    r"|#\d+ |\s*\[?0x[0-9a-f]{6,}\]?|\S+\([^()]*\+0x[0-9a-f]+\)|\*{3} (?:SIG|End of|Process|Signal)"
    r"|(?:Aborted|Segmentation fault|Killed|Trace/breakpoint trap)(?: \(core dumped\))?$"
    r"|\S{1,200}: (?:line \d+: {1,5})?\d+ (?:Aborted|Segmentation fault|Killed|Bus error|Illegal instruction"
    r"|Floating point exception|Trace/breakpoint trap)\b|g?make(?:\[\d+\])?: \*{3} "
)
"""Lines that follow the last words and are none."""
_TIMESTAMPED = regex(r"\[?\d{2,4}[-:/.]\d\d")


def last_words(crash: Crash) -> LastWords | None:
    """The last block of lines on stderr that is no stack; where stderr was not read, what memory still has of it."""
    if crash.log_tail is None:
        return crash.last_words
    block = _last_block(crash.log_tail, crash.exit.text if crash.exit is not None else None)
    left = crash.last_words
    first = left.text.partition("\n")[0] if left is not None else ""
    if left is not None and first in crash.log_tail and first not in block:
        # It was not the last that was written, but it is what the program ended with.
        return LastWords(text=left.text, where=_STDERR if _was_watched(crash) else _TEXT)
    if not block:
        return left
    return LastWords(text=block, where=_STDERR if _was_watched(crash) else _TEXT)


def of_process(crash: Crash) -> LastWords | None:
    """The same, of a process that was watched; None of a text, whose end may be words of others."""
    words = last_words(crash)
    return None if words is None or words.where == _TEXT else words


_STDERR, _TEXT = "the end of stderr", "the end of the text"


def _was_watched(crash: Crash) -> bool:
    """The process wrote the log itself; a pasted text may continue with other output."""
    if crash.environment is not None or crash.modules is not None or crash.registers is not None:
        return True
    return crash.pid is not None and crash.exit is not None and crash.exit.text is None


def _last_block(tail: str, ending: str | None) -> str:
    """``ending``: a sentence about the end itself, which the program did not write."""
    lines = [line.rstrip("\r").rsplit("\r", 1)[-1].rstrip()[:_LONGEST_LINE] for line in tail.splitlines()]
    ends = frozenset({ending.strip()} if ending else ())
    paragraphs = 0
    while lines and paragraphs < _PARAGRAPHS:
        block: list[str] = []
        while lines and not lines[-1].strip():
            lines.pop()
        while lines and lines[-1].strip():
            line = lines.pop()
            if line.strip() not in ends and not _BELOW.match(line):
                block.append(line)
        paragraphs += 1
        if block:
            block.reverse()
            return "\n".join(_last_message(block))
    return ""


def _last_message(block: list[str]) -> list[str]:
    """From the last line with a time stamp, if there is one."""
    if len(block) <= _MOST_LINES and not any(map(_TIMESTAMPED.match, block)):
        return block
    stamped = next((at for at in range(len(block) - 1, -1, -1) if _TIMESTAMPED.match(block[at])), None)
    if stamped is not None and len(block) - stamped <= _MOST_LINES:
        return block[stamped:]
    return block[-_OF_A_LONG_ONE:]


def in_a_sentence(words: LastWords) -> str:
    """``Its last words on stderr: “cannot open the catalog”.``, with the origin where it is another."""
    text = " ".join(words.text.split())
    text = text if len(text) <= _IN_A_SENTENCE else text[: _IN_A_SENTENCE - 4] + " ..."
    known = {_STDERR: "Its last words on stderr", _TEXT: "The text ends with"}
    return f"{known.get(words.where, f'Its last words ({words.where})')}: \u201c{text.rstrip('.')}\u201d."


def quoted_first(words: LastWords) -> str:
    """``“cannot open the catalog” were the last words on stderr``: the beginning of a sentence, for a headline."""
    text = " ".join(words.text.split())
    text = text if len(text) <= _IN_A_SENTENCE else text[: _IN_A_SENTENCE - 4] + " ..."
    known = {_STDERR: "were the last words on stderr", _TEXT: "were the last words of the text"}
    return f"\u201c{text.rstrip('.')}\u201d {known.get(words.where, f'were its last words ({words.where})')}"


def as_evidence(words: LastWords | None) -> Found:
    """The same as evidence, its lines in one."""
    if words is None:
        return ()
    seen = " ".join(words.text.split())[:_LONGEST_LINE]
    claims = {_STDERR: "the last that it wrote", _TEXT: "the last lines"}
    return (Evidence(claim=claims.get(words.where, "words that it left in memory"), seen=seen, where=words.where),)
