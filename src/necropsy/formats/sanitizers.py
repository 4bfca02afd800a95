"""The report of a sanitizer: the access, its thread, who freed or allocated the memory, and other threads.

Formats of compiler-rt and of GCC's libsanitizer, which differ in brackets only (lib/sanitizer_common/
sanitizer_stacktrace_printer.cpp; lib/asan/asan_descriptions.cpp, asan_errors.cpp; lib/tsan/rtl/tsan_report.cpp).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from necropsy.formats import backtrace
from necropsy.lazy_re import regex
from necropsy.model import Frame

LINES = 60
"""Lines below a report's first one that are read for a message: the first stack is the one of the bad access."""
WHOLE = 900
"""Lines of a whole report: three stacks of at most 256 frames."""

HEAD = regex(
    r"(?:==(?P<pid>\d{1,10})==\s?)?(?P<level>ERROR|WARNING): (?P<tool>\w+Sanitizer|libFuzzer): (?P<rest>\S.*)$"
)
UNDEFINED = regex(r"(?P<file>[^\s:]{1,500}):(?P<line>\d{1,9}):(?P<column>\d{1,9}): runtime error: (?P<rest>\S.*)$")
SUMMARY = regex(r"SUMMARY: (?P<tool>\w+): (?P<summary>\S.*)")
_FRAME = regex(r"\s*#(?P<index>\d{1,6}) (?:(?P<address>0x[0-9a-f]{1,16}) +(?:in )?)?(?P<rest>\S.*)")
# A whole path may have blanks in it; it begins at the first slash behind a blank.
_PLACE = regex(
    r"(?P<function>.+?) (?P<file>(?:[A-Za-z]:[\\/]|/)[^():]+|(?:[A-Za-z]:)?[^\s():]+)"
    r":(?P<line>\d{1,9})(?::\d{1,9})?(?= |$)"
)
_FILE_ALONE = regex(r"(?P<function>\S.*?) (?P<file>/[^():]+\.\w{1,4})(?= \(|$)")
_MODULE = regex(r" ?\((?P<module>[^()]{1,500}?)(?::\w+)?\+(?P<offset>0x[0-9a-f]{1,16})\)")
_OFFSET = regex(r"\+0x[0-9a-f]+$")
_ACCESS = regex(
    r"\s*(?P<again>Previous )?(?P<access>[Rr]ead|READ|[Ww]rite|WRITE|[Aa]tomic (?:read|write)) of size (?P<size>\d+)"
    r" at (?P<address>0x[0-9a-f]+)(?: tags: \S+)?(?: \([^)]*\))?(?: by| thread)? ?"
    r"(?P<thread>main thread|(?:thread )?T\d+)?"
)
_ACCESS_ALONE = regex(r"\s*(?P<access>READ|WRITE) of size (?P<size>\d+)")
_BLOCK = regex(
    r"0x[0-9a-f]+ is located (?P<distance>\d+) bytes "
    r"(?P<side>after|before|inside of|inside|to the right of|to the left of) (?:a )?(?P<block>\d+)-byte region"
)
_VARIABLE = regex(r"'(?P<name>[^']{1,200})'(?: \(line \d+\))? <== Memory access at offset")
_CAUSE = regex(r"\s*Cause: (?P<cause>[a-z-]+(?: tag-mismatch)?)")
_CAUSES = {"use-after-free": "heap-use-after-free"}
_SHADOW_MASK = 0x780000000000
_NULL_PAGE = 4096
_SIDES = {"to the right of": "after", "to the left of": "before", "inside": "inside of"}
_OF_THE_TOOL = regex(
    r"__?(?:asan|tsan|ubsan|msan|hwasan|lsan|interceptor|sanitizer|interception)|operator (?:new|delete)"
    r"|(?:mem|str|wcs|wmem)[a-z]+(?:_chk)?$|v?s?n?w?printf(?:_common)?$|free$|(?:m|c|re)alloc$|wrap_\w+$|\w+_common$"
    r"|_IO_\w+$|(?:fread|fwrite|read|write|pread|pwrite|recv|send|puts|fputs|fgets|getline|read_iovec|write_iovec|pthread_create)$"
)
_TOOL_FILE = regex(r"/libsanitizer/|/compiler-rt/lib/|sanitizer_common")
_TOOL_MODULE = regex(r"lib(?:clang_rt\.)?(?:[athwlm]+san|ubsan)")
_STARTS = regex(r"_?_libc_start|_start$|start_thread$|clone3?$|asan_thread_start|\(?below main")
_LIBRARY_FILE = regex(
    r"/include/c\+\+/|/bits/stl_|/include/(?:x86_64-[\w-]+/)?bits/|/usr/lib/gcc/|\.\./sysdeps/|/libstdc\+\+-v3/"
)
_KINDS = (
    ("double-free", "attempting double-free"),
    ("bad-free", "attempting free on address"),
    ("leak", "detected memory leaks"),
    ("allocation-size-too-big", "requested allocation size"),
    ("out-of-memory", "allocator is out of memory"),
    ("calloc-overflow", "calloc parameters overflow"),
    ("rss-limit-exceeded", "specified RSS limit exceeded"),
    ("lock-order-inversion", "lock-order-inversion"),
    ("data race", "data race"),
)
_TITLES = (
    ("freed", regex(r"\s*(?:previously )?freed by ")),
    (
        "allocated",
        regex(r"\s*(?:previously )?allocated by |\s*Location is heap block of size \d+ at \S+ allocated by"),
    ),
    ("leak", regex(r"(?:Direct|Indirect) leak of ")),
    ("created", regex(r"\s*Thread T\d+ .*created by")),
    ("object", regex(r"\s*Address \S+ is located in stack of thread")),
    ("mutex", regex(r"\s*Mutex M\d+ ")),
)


@dataclass
class ReportPart:
    """One stack of a report; ``role``: access, again (the other side of a race), freed, allocated, created, object."""

    role: str
    thread: str | None = None
    frames: list[Frame] = field(default_factory=list)


@dataclass
class SanitizerReport:
    """What stands below a report's first line; ``last`` is the position of its last line that was read."""

    parts: list[ReportPart] = field(default_factory=list)
    fields: dict[str, str] = field(default_factory=dict)
    last: int = -1

    def part(self, role: str) -> ReportPart | None:
        """The first stack with this role that has frames."""
        return next((one for one in self.parts if one.role == role and one.frames), None)


def kind_of(rest: str) -> str:
    """The kind of error in one word, as SUMMARY lines spell it, from what stands behind the tool's name."""
    for kind, words in _KINDS:
        if rest.startswith(words):
            return kind
    return rest.split(" ", 1)[0].rstrip(":")


def exact(kind: str, fields: Mapping[str, str]) -> str:
    """The kind of what HWAddressSanitizer calls a mismatch of tags at first: it finds the cause later."""
    cause = fields.get("cause")
    return kind if kind != "tag-mismatch" or cause is None else _CAUSES.get(cause, cause)


def accessed(address: str) -> int:
    """The address of an access, as a number.

    ThreadSanitizer has it from its shadow, where several addresses meet (on x86-64 ``MemToShadow`` leaves these bits
    out: lib/tsan/rtl/tsan_platform.h): it prints a null pointer as 0x780000000000, where there is never memory.
    """
    number = int(address, 16)
    low = number & ~_SHADOW_MASK
    return low if low < _NULL_PAGE else number


def below(lines: Sequence[str], most: int = WHOLE) -> SanitizerReport:
    """The report whose first line is the one before ``lines``; it ends where another one begins, or after ``most``."""
    found = SanitizerReport()
    part: ReportPart | None = ReportPart("access")
    for at, line in enumerate(lines[:most]):
        text = line[: backtrace.LONGEST]
        if ("Sanitizer: " in text and HEAD.search(text)) or ": runtime error: " in text:
            break
        frame = read_frame(text) if "#" in text else None
        if frame is not None:
            if part is None or (part.frames and frame.index <= part.frames[-1].index):
                part = ReportPart("other")
            if not part.frames:
                found.parts.append(part)
            part.frames.append(frame)
            found.last = at
            continue
        if match := SUMMARY.search(text):
            found.fields["summary"] = match["summary"].strip()
            found.last = at
            break
        part = _title(text, part, found, at)
    return found


def _title(text: str, part: ReportPart | None, found: SanitizerReport, at: int) -> ReportPart | None:
    """The stack that a line begins; None behind an empty line, where the stack before it has ended."""
    if match := _ACCESS.match(text) or _ACCESS_ALONE.match(text):
        groups = match.groupdict()
        again = bool(groups.get("again")) or "access" in found.fields
        if not again:
            found.fields |= {"access": groups["access"].lower(), "size": groups["size"]}
            if groups.get("address"):
                found.fields["address"] = hex(accessed(groups["address"]))
        found.last = at
        thread = groups.get("thread")
        return ReportPart("again" if again else "access", thread.removeprefix("thread ") if thread else None)
    if match := _CAUSE.match(text):
        found.fields.setdefault("cause", match["cause"])
    elif match := _BLOCK.search(text):
        side = _SIDES.get(match["side"], match["side"])
        found.fields |= {"block": match["block"], "distance": match["distance"], "side": side}
    elif match := _VARIABLE.search(text):
        found.fields["variable"] = match["name"]
    for role, pattern in _TITLES:
        if pattern.match(text):
            return ReportPart(role)
    return part if text.strip() or (part is not None and not part.frames) else None


def report(lines: Sequence[str]) -> dict[str, str]:
    """Fields of the report whose first line is the one before ``lines``, for the rules on it."""
    return fields_of(below(lines, LINES))


def fields_of(found: SanitizerReport) -> dict[str, str]:
    """Who did it, and for what was freed or raced for, who else had to do with it."""
    fields = dict(found.fields)
    first = (
        found.part("access")
        or found.part("leak")
        or (found.parts[0] if found.parts and found.parts[0].role == "other" else None)
    )
    if first is not None and (frame := own(first.frames)) is not None:
        fields |= _place(frame)
    for role in ("again", "freed", "allocated"):
        part = found.part(role)
        if part is not None and (frame := own(part.frames)) is not None:
            fields[role] = spelled(frame)
    return fields


def own(frames: Sequence[Frame]) -> Frame | None:
    """The innermost frame that is neither the tool's nor the standard library's; else one that is not the tool's."""
    mine = [frame for frame in frames if frame.function and not is_of_tool(frame) and not _STARTS.match(frame.function)]
    return next((frame for frame in mine if not is_of_library(frame)), mine[0] if mine else None)


def is_of_tool(frame: Frame) -> bool:
    """The frame belongs to the sanitizer, or is a function that it replaces."""
    name = (frame.function or "").removeprefix("__GI_")
    return bool(
        _OF_THE_TOOL.match(name)
        or (frame.source and _TOOL_FILE.search(frame.source))
        or (frame.module and _TOOL_MODULE.match(frame.module.rsplit("/", 1)[-1]))
    )


def is_of_library(frame: Frame) -> bool:
    """The frame is code of the C or C++ standard library, as it is in a header or in the C library."""
    header = frame.source is not None and "." not in frame.source.rsplit("/", 1)[-1]
    return header or bool(_LIBRARY_FILE.search(frame.source or "")) or (frame.function or "").startswith("std::")


def _place(frame: Frame) -> dict[str, str]:
    fields = {"function": frame.function or ""}
    if frame.source is not None:
        fields["file"] = frame.source
    if frame.line is not None:
        fields["source_line"] = str(frame.line)
    if frame.module is not None:
        fields["module"] = frame.module.rsplit("/", 1)[-1]
    return fields


def spelled(frame: Frame) -> str:
    """``op::Release(Node*) at op.cc:14``."""
    where = f" at {frame.source}:{frame.line}" if frame.source else (f" in {frame.module}" if frame.module else "")
    return f"{frame.function}{where}"


def read_frame(text: str) -> Frame | None:
    """``#1 0x5578 in f(int) file.cc:3:5``, ``#1 f(int) file.cc:3 (a.out+0x1234)``, ``#1 0x5578  (lib.so+0x1234)``."""
    match = _FRAME.match(text)
    if match is None:
        return None
    rest = match["rest"].rstrip()
    module = _MODULE.search(rest)
    if match["address"] is None and module is None and _PLACE.match(rest) is None and "<null>" not in rest:
        return None
    place = _PLACE.match(rest) or _FILE_ALONE.match(rest)
    name = (
        place["function"] if place else (rest[: module.start()] if module else rest.split(" (<unknown module>)", 1)[0])
    )
    name = _OFFSET.sub("", name.removesuffix(" <null>").strip())
    return backtrace.native(
        int(match["index"]),
        None if name.startswith("(") else name,
        module=module["module"] if module else None,
        source=place["file"] if place else None,
        line=int(place["line"]) if place and place.groupdict().get("line") else None,
        address=backtrace.hexadecimal(match["address"]),
        offset=backtrace.hexadecimal(module["offset"]) if module else None,
    )
