"""The report of a sanitizer: lines -> what was accessed, and the first frame that is the program's own.

Formats of compiler-rt and of GCC's libsanitizer, which differ in brackets only (lib/sanitizer_common/
sanitizer_stacktrace_printer.cpp; lib/asan/asan_descriptions.cpp; lib/tsan/rtl/tsan_report.cpp).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

LINES = 60
"""Lines of one report that are read: the first stack is the one of the bad access."""

_FRAME = re.compile(r"\s*#(?P<index>\d+) (?:0x[0-9a-f]+ (?:in )?)?(?P<rest>\S.*)")
_PLACE = re.compile(r"(?P<function>.+?) (?P<file>[^\s()]+):(?P<line>\d+)(?::\d+)?(?: .*)?$")
_MODULE = re.compile(r"(?P<function>.*?) ?\((?P<module>[^()+]+)\+0x[0-9a-f]+\)")
_ACCESS = re.compile(r"\s*(?P<access>[Rr]ead|READ|[Ww]rite|WRITE|Atomic \w+) of size (?P<size>\d+)")
_BLOCK = re.compile(
    r"0x[0-9a-f]+ is located (?P<distance>\d+) bytes "
    r"(?P<side>after|before|inside of|to the right of|to the left of) (?P<block>\d+)-byte region"
)
_SUMMARY = re.compile(r"SUMMARY: \w+: (?P<summary>.+)")
_OF_THE_TOOL = re.compile(
    r"__?(?:asan|tsan|ubsan|msan|interceptor|sanitizer)|operator (?:new|delete)"
    r"|(?:mem|str)[a-z]+$|free$|(?:m|c|re)alloc$"
)


def report(lines: Sequence[str]) -> dict[str, str]:
    """Fields of the report whose first line is the one before ``lines``."""
    fields: dict[str, str] = {}
    in_first_stack = True
    seen_frame = False
    for line in lines[:LINES]:
        if match := _FRAME.match(line):
            if in_first_stack and "function" not in fields:
                fields |= _place(match["rest"])
            seen_frame = True
            continue
        if seen_frame and not line.strip():
            in_first_stack = False
        if match := _ACCESS.match(line):
            fields.setdefault("access", match["access"].lower())
            fields.setdefault("size", match["size"])
        elif match := _BLOCK.search(line):
            fields |= {"block": match["block"], "distance": match["distance"], "side": match["side"]}
        elif match := _SUMMARY.match(line.strip()):
            fields["summary"] = match["summary"]
            break
    return fields


def _place(rest: str) -> dict[str, str]:
    """Function, file and line of a frame; empty where it is the tool's own or the C library's."""
    if match := _PLACE.match(rest):
        if _OF_THE_TOOL.match(match["function"]) or "/libsanitizer/" in match["file"]:
            return {}
        return {"function": match["function"], "file": match["file"], "source_line": match["line"]}
    if match := _MODULE.match(rest):
        if not match["function"] or _OF_THE_TOOL.match(match["function"]):
            return {}
        return {"function": match["function"], "module": match["module"].rsplit("/", 1)[-1]}
    return {}
