"""Stacks that WinDbg's ``k`` commands print, one frame a row. Formats: Microsoft Learn, *k, kb, kc, kd, kp, kP, kv*."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from necropsy.formats import backtrace
from necropsy.formats.windows_exits import STACK_OVERFLOW
from necropsy.lazy_re import regex
from necropsy.model import Address, Frame, Stack, Thread

HEX = r"[0-9a-f]{8}`?[0-9a-f]{8}"
"""An address of 64 bits: WinDbg divides it in the middle."""

_ROW = regex(
    rf"\s{{0,4}}(?:(?P<index>[0-9a-f]{{2,5}}) )?(?:(?P<sp>{HEX}) (?P<ret>{HEX})|(?P<kb>{HEX})(?= :)|"
    r"\(Inline Function\) --------`--------)"
    r"\s{0,6}(?:: (?:[0-9a-f`]{16,17} ){0,4}[0-9a-f`]{16,17} ?: ?)?\s{0,6}(?P<symbol>[^\s:].{0,1200})$"
)
_ROW_32 = regex(
    r"\s{0,4}(?:(?P<index>[0-9a-f]{2,3}) )?(?P<sp>[0-9a-f]{8}) (?P<ret>[0-9a-f]{8}) (?:[0-9a-f]{8} ){0,3}"
    r"(?P<symbol>[A-Za-z_][\w.]{0,80}[!+].{1,1200})$"
)
BARE = regex(
    r"\s{0,4}(?:(?P<index>[0-9a-f]{2,3}) )?(?P<symbol>[A-Za-z_][\w.]{1,80}(?:!\S.{0,1000}|\+0x[0-9a-f]{1,8}))$"
)
_PLACE = regex(r" \[(?P<file>[^\[\]]{1,400}?) @ (?P<line>\d{1,7})\]")
_SYMBOL = regex(r"(?P<module>[A-Za-z_][\w.\-]{0,120}?)(?:!(?P<function>.{1,1200}))?$")


@dataclass
class Shown:
    """A stack with its stack pointers; ``marked`` in the list of threads; ``analyzed``: the one of ``!analyze``."""

    tid: int | None
    name: str | None
    marked: bool
    analyzed: bool
    rows: list[tuple[Frame, int | None]] = field(default_factory=list)


def row_of(text: str, *, in_stack: bool) -> re.Match[str] | None:
    """The row of a stack; one without addresses only ``in_stack`` or where it has an offset."""
    match = _ROW.match(text) or _ROW_32.match(text) or BARE.match(text)
    if match is None or text.endswith(":") or (match.re is BARE and not in_stack and "+0x" not in text):
        return None
    return match if match.re is not _ROW or _is_symbol(match["symbol"]) else None


def _is_symbol(text: str) -> bool:
    return "!" in text or "+0x" in text or text.startswith("0x") or re.match(r"[A-Za-z_][\w.]{0,80}$", text) is not None


def frame_of(match: re.Match[str], place: int) -> tuple[Frame, int | None]:
    """The frame of a row and its stack pointer; offsets behind a function's name count from the function."""
    groups = match.groupdict()
    text = match["symbol"].strip()
    source = _PLACE.search(text)
    if source is not None:
        text = text[: source.start()]
    text, _, offset = text.partition("+0x") if "!" not in text else text.rpartition("+0x")
    if not text:
        text, offset = offset, ""
    symbol = _SYMBOL.match(text)
    pointer = backtrace.hexadecimal((groups.get("sp") or "").replace("`", ""))
    if symbol is None:
        address = backtrace.hexadecimal(text.replace("`", "").removeprefix("0x"))
        return backtrace.native(place, None, address=address), pointer
    frame = backtrace.native(
        place,
        symbol["function"],
        module=symbol["module"],
        source=source["file"] if source else None,
        line=int(source["line"]) if source else None,
        offset=backtrace.hexadecimal(offset) if symbol["function"] is None else None,
    )
    return frame, pointer


def thread_of(stack: Shown, *, tid: int | None, code: int | None) -> Thread:
    """The crashed thread with its frames' sizes, by the distance of their stack pointers."""
    frames = [frame for frame, _ in stack.rows]
    pointers = [pointer for _, pointer in stack.rows]
    sizes = [
        high - low if low is not None and high is not None and 0 < high - low < 1 << 30 else None
        for low, high in zip(pointers, [*pointers[1:], None], strict=True)
    ]
    frames = [msgspec.structs.replace(frame, stack_bytes=size) for frame, size in zip(frames, sizes, strict=True)]
    full = code == STACK_OVERFLOW
    pointer = next((one for one in pointers if one is not None), None)
    told = backtrace.thread(
        frames,
        tid=tid if tid is not None else stack.tid,
        name=stack.name,
        crashed=True,
        cut=len(frames) == 256,
        stack=Stack(guard_hit=True, pointer=Address(pointer) if pointer else None) if full else None,
    )
    folds = tuple(
        msgspec.structs.replace(fold, bytes_per_period=_bytes(pointers, fold.start or 0, fold.period))
        for fold in told.folds
    )
    return msgspec.structs.replace(told, folds=folds)


def _bytes(pointers: Sequence[int | None], start: int, period: int) -> float | None:
    shown = [pointer for pointer in pointers[start : start + 64 * period : period] if pointer is not None]
    distance = shown[-1] - shown[0] if len(shown) > 1 else 0
    return distance / (len(shown) - 1) if 0 < distance < 1 << 32 else None
