"""LLVM's handler of crashes on Windows, which comes with every library that has LLVM inside: a code and its stack.

Format: llvm/lib/Support/Windows/Signals.inc (``PrintStackTrace``, ``LLVMUnhandledExceptionFilter``); as in
https://github.com/ROCm/legacy-rocm-build/issues/5440, torch_hip.dll; newer, with ``#0 0x… (path+0x…)``, as in
https://github.com/lshqqytiger/stable-diffusion-webui-amdgpu/issues/645, amdhip64_7.dll.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from necropsy.formats import backtrace
from necropsy.formats.lines import Line
from necropsy.formats.text_reports import TextReader, TextReport
from necropsy.formats.windows_exits import STACK_OVERFLOW, end_of, fault_of, is_status
from necropsy.model import Crash, Environment, Frame, Stack

KIND = "llvm-windows"
_REACH = 600
_WIDEST = 2000
_FAR = 0x10000
"""Bytes behind its beginning at which hardly a function goes on."""

_CODE = re.compile(r"(?:^|\s)Exception Code: 0x(?P<code>[0-9A-Fa-f]{8})\s*$")
_FRAME = re.compile(
    r"\s{0,8}(?:#\d{1,4} )?0x(?P<address>[0-9A-Fa-f]{8,16}),? (?P<module>[^,(]{1,300}?)\(0x[0-9A-Fa-f]{8,16}\) \+ "
    r"0x(?P<offset>[0-9A-Fa-f]{1,16}) byte\(s\)"
    r"(?:, (?P<symbol>\S.{0,1000}?) ?\+ ?0x(?P<into>[0-9A-Fa-f]{1,16}) byte\(s\))?"
    r"(?:, (?P<file>[^,]{1,300}), line (?P<line>\d{1,7}))?"
)
_NEWER = re.compile(
    r"\s{0,8}#\d{1,4} 0x(?P<address>[0-9A-Fa-f]{8,16}) "
    r"(?:\((?P<module>[A-Za-z]:[\\/].{1,400})\+0x(?P<offset>[0-9A-Fa-f]{1,16})\)"
    r"|(?P<symbol>[^\s(].{0,1000}?) (?P<file>[A-Za-z]:[\\/].{1,300}?):(?P<line>\d{1,7})(?::\d{1,7})?)\s*$"
)
_NAME = re.compile(r"\?(?P<special>\?[01])?(?P<parts>[A-Za-z_]\w*(?:@[A-Za-z_]\w*){0,20})@@")


def read(lines: Sequence[Line], index: int) -> TextReport | None:
    """The code at ``index`` and the stack below it."""
    match = _CODE.search(lines[index].text[:_WIDEST])
    code = int(match["code"], 16) if match else 0
    frames: list[Frame] = []
    last = index
    for at in range(index + 1, min(len(lines), index + _REACH)):
        text = lines[at].text[:_WIDEST]
        row = _FRAME.match(text) or _NEWER.match(text)
        if row is None:
            if frames or at - index > 3:
                break
            continue
        frames.append(_frame(row, len(frames)))
        last = at
    if not is_status(code) or not frames:
        return None
    stack = Stack(guard_hit=True) if code == STACK_OVERFLOW else None
    crash = Crash(
        exit=end_of(code, f"Exception Code: 0x{code:08X}"),
        fault=fault_of(code),
        threads=(backtrace.thread(frames, crashed=True, stack=stack),),
        environment=Environment(platform="Windows"),
    )
    return TextReport(KIND, lines[index].number, lines[last].number, crash)


def _frame(row: re.Match[str], place: int) -> Frame:
    """A frame; without debug information its name is the nearest exported one: far behind it, it is another's."""
    parts = row.groupdict()
    symbol = parts["symbol"] if int(parts.get("into") or "0", 16) < _FAR else None
    return backtrace.native(
        place,
        _readable(symbol) if symbol else None,
        module=re.split(r"[/\\]", row["module"])[-1] if row["module"] else None,
        source=row["file"],
        line=backtrace.number(row["line"]),
        address=int(row["address"], 16),
        offset=backtrace.hexadecimal(row["offset"]),
    )


def _readable(symbol: str) -> str:
    """``?topk@cuda@at@@YA...`` as people write it, ``at::cuda::topk``; with template arguments it stays as it is."""
    match = _NAME.match(symbol)
    if match is None:
        return symbol
    parts = match["parts"].split("@")[::-1]
    ending = {"?0": parts[-1], "?1": f"~{parts[-1]}"}.get(match["special"] or "")
    return "::".join([*parts, ending] if ending else parts)


READER = TextReader(kind=KIND, triggers=("Exception Code: 0x",), read=read, reach=_REACH)
