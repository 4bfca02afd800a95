"""Messages of macOS' loader and C library before they abort: ``Library not loaded``, ``pointer being freed``.

Texts: dyld's dyld/Loader.cpp and common/Diagnostics; libmalloc's src/magazine_tiny.c and src/malloc.c; Libc.
"""

from __future__ import annotations

from necropsy.lazy_re import regex
from necropsy.model import Message

_MISSING = regex(r"Library not loaded: (?P<library>\S[^\n]{0,300})")
_SYMBOL = regex(r"[Ss]ymbol not found: (?:\()?(?P<symbol>[^\s)'\"]{1,400})\)?")
_EXPECTED = regex(r"Expected in: (?:<[^>]{1,60}> )?(?P<library>[^\n]{1,300})")
_REASON = regex(r"Reason: (?P<reason>[^\n]{1,1500})")
_WRONG = regex(
    r"(?:incompatible architecture|no matching architecture|wrong architecture|not a mach-o file|"
    r"code signature (?:in|invalid)|different Team IDs|have '[^']{1,40}', need '[^']{1,40}')"
)
_COMPLAINTS = (
    ("stack-smash", regex(r"stack buffer overflow|detected stack overflow|__stack_chk_fail")),
    ("fortify", regex(r"detected source and destination buffer overlap|detected buffer overflow|__chk_fail")),
    (
        "malloc-complaint",
        regex(
            r"pointer being (?:freed|realloc'd) was not allocated|[Ii]ncorrect (?:guard value|checksum for freed)|"
            r"[Dd]ouble free|Corruption of (?:tiny|small|free) |[Hh]eap corruption detected|"
            r"object was probably modified after being freed|free list is damaged|Non-aligned pointer being freed"
        ),
    ),
)


def kind_of(said: str) -> str | None:
    """The id of the phrase that the C library's message are, where they are known."""
    return next((kind for kind, pattern in _COMPLAINTS if pattern.search(said)), None)


def messages(said: str, where: str, line: int, *, refused: bool) -> list[Message]:
    """What the loader could not find or use; ``refused``: because of it the program was not started."""
    fields = {"loader": "dyld"} if refused else {}
    reason = _REASON.search(said)
    if match := _SYMBOL.search(said):
        expected = _EXPECTED.search(said)
        fields |= {"symbol": match["symbol"].removeprefix("_")}
        fields |= {"library": expected["library"].strip()} if expected else {}
        return [Message(kind="undefined-symbol", text=_short(said), where=where, line=line, fields=fields)]
    match = _MISSING.search(said)
    if match is None and not _WRONG.search(said):
        return []
    why = reason["reason"] if reason else "the library was not found"
    wrong = _WRONG.search(why)
    fields |= {"text": wrong[0] if wrong else why[:300]}
    if match is not None:
        fields["library"] = match["library"].strip()
    kind = "bad-library-file" if wrong else "missing-library"
    return [Message(kind=kind, text=_short(said), where=where, line=line, fields=fields)]


def _short(said: str) -> str:
    return " ".join(said.split())[:600]
