"""Reports of NVIDIA's compute-sanitizer and of cuda-memcheck before it: what a kernel on the GPU did.

::

    ========= Invalid __global__ write of size 4 bytes
    =========     at unsafe_kernel(int *)+0x70 in demo.cu:10
    =========     by thread (0,0,0) in block (0,0,0)
    =========     Address 0x7f0000000001 is out of bounds
    =========     Host Frame: main in main.cu:12 [0x8e4]
    ========= ERROR SUMMARY: 1 error

Formats of the tools' manual (docs.nvidia.com/compute-sanitizer, 2021.1 to 2025.3; cuda-memcheck 9 to 11).
"""

from __future__ import annotations

from collections.abc import Sequence

from necropsy.formats import backtrace
from necropsy.formats.lines import Line
from necropsy.formats.text_reports import TextReader, TextReport
from necropsy.lazy_re import regex
from necropsy.model import Crash, Message

REACH = 600
_MOST = 64
_OWN = regex(r"[\s>|]{0,16}={9}(?P<rest> .*|)$")
_ERROR = regex(
    r"(?P<kind>(?:Invalid|Misaligned|Out-of-range|Uninitialized) (?:Shared or Local |Address|__\w+__ )?(?:memory )?"
    r"(?:(?P<access>read|write|atomic|reduction|access)?)(?: of size (?P<size>\d+)(?: bytes)?)?|Stack overflow"
    r"|Malloc/Free Error .*|Barrier error detected.*|Warp assert|Illegal instruction|Hardware exception.*"
    r"|Device-side assert.*|(?:(?:Error|Warning): )?Race reported between .*)"
)
_AT = regex(r"at (?P<function>[^\s(]\S*(?:\([^()]*\))?\S*?)\+0x[0-9a-f]+(?: in (?P<source>\S.*):(?P<line>\d+))?$")
_AT_PLACE = regex(r"at 0x[0-9a-f]+ in (?:(?P<source>\S.*):(?P<line>\d+):)?(?P<function>\S.*)$")
_BY = regex(r"by thread (?P<thread>\([\d,]+\)) in block (?P<block>\([\d,]+\))")
_ADDRESS = regex(r"(?:Access to |Address )(?P<address>0x[0-9a-f]+)(?:\+\S+)? is (?P<problem>\S.*)$")
_HOST = regex(r"Host Frame: ?(?P<function>[^\s\[\]/][^\[\]]*?) in (?P<source>\S[^\[\]]*?):(?P<line>\d+) \[")
_SUMMARY = regex(r"ERROR SUMMARY: (?P<count>\d+) error")


def _read(lines: Sequence[Line], index: int) -> TextReport | None:
    """All errors up to the summary, and none where that counts none."""
    found: list[tuple[Line, dict[str, str]]] = []
    now: dict[str, str] | None = None
    last, others = index, 0
    for at in range(index, min(len(lines), index + REACH)):
        match = _OWN.match(lines[at].text[: backtrace.LONGEST])
        if match is None:
            others += 1
            if others > 60:
                break
            continue
        others, last = 0, at
        if not found and at - index > backtrace.BEFORE:
            break
        text = match["rest"].strip()
        if not text:
            now = None
        elif error := _ERROR.match(text):
            now = {"tool": "compute-sanitizer", "kind": error["kind"].strip()}
            now |= {name: error[name] for name in ("access", "size") if error[name]}
            if len(found) < _MOST:
                found.append((lines[at], now))
        elif now is not None:
            _detail(now, text)
        if _SUMMARY.match(text):
            break
    if not found:
        return None
    messages = tuple(
        Message(
            kind="compute-sanitizer",
            text=line.text.strip(),
            where=f"log line {line.number}",
            line=line.number,
            fields=fields,
        )
        for line, fields in found
    )
    return TextReport("compute-sanitizer", lines[index].number, lines[last].number, Crash(messages=messages))


def _detail(now: dict[str, str], text: str) -> None:
    if "function" not in now and (match := _AT.match(text) or _AT_PLACE.match(text)):
        now["function"] = match["function"]
        if match["source"]:
            now |= {"file": match["source"], "source_line": match["line"]}
    elif match := _BY.match(text):
        now |= {"thread": match["thread"], "block": match["block"]}
    elif match := _ADDRESS.match(text):
        now |= {"address": match["address"], "problem": match["problem"]}
    elif "host" not in now and (match := _HOST.match(text)):
        now["host"] = f"{match['function'].strip()} at {match['source']}:{match['line']}"


READER = TextReader(
    kind="compute-sanitizer",
    triggers=(
        "========= Invalid ",
        "========= Misaligned ",
        "========= Out-of-range",
        "========= COMPUTE-SANITIZER",
        "========= CUDA-MEMCHECK",
        "========= Stack overflow",
        "========= Barrier error",
        "========= Device-side",
        "========= Uninitialized",
    ),
    read=_read,
    reach=REACH,
)
