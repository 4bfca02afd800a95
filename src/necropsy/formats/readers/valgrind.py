"""valgrind: memcheck's invalid accesses and frees, helgrind's and drd's races, and the signal at the end.

Formats of valgrind 3.13 to 3.25 (memcheck/mc_errors.c, coregrind/m_addrinfo.c, coregrind/m_signals.c,
helgrind/hg_errors.c, drd/drd_error.c). Known harmless errors are left out: CPython's allocator reads memory that
it need not own (Misc/README.valgrind), and the dynamic linker looks at words before they are written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from necropsy.formats import backtrace, sanitizers
from necropsy.formats.lines import Line
from necropsy.formats.text_reports import TextReader, TextReport
from necropsy.lazy_re import regex
from necropsy.model import Access, Address, Crash, Exit, Fault, Frame, Message, Stack

REACH = 4000
_OTHERS = 200
"""Lines in a row that are not valgrind's own (what the program prints) end its report."""
_MOST = 64
"""Errors of one report that are kept: the first ones are the cause."""

_OWN = regex(r"(?:\s|>)*(?:==|\*\*)(?:[\d:.]+ )?(?P<pid>\d{1,10})(?::\d+)?(?:==|\*\*) ?(?P<rest>.*)$")
_FRAME = regex(r" {1,6}(?P<how>at|by) (?P<address>0x[0-9A-Fa-f]{1,16}): (?P<rest>\S.*)$")
_PLACE = regex(r" \((?P<source>[^()\s][^()]*):(?P<line>\d{1,9})\)$")
_OBJECT = regex(r" \(in (?P<module>[^()]+)\)$")
_INVALID = regex(r"Invalid (?P<access>read|write) of size (?P<size>\d+)")
_INVALID_FREE = regex(r"Invalid (?:free\(\)|delete|delete\[\]|realloc\(\))")
_MISMATCHED = regex(r"Mismatched (?:free\(\)|new/delete|size)")
_UNSET = regex(r"Conditional jump or move depends on uninitialised|Use of uninitialised value")
_JUMP = "Jump to the invalid address stated on the next line"
_OVERLAP = "Source and destination overlap in "
_RACE = regex(r"(?:Possible data race during|Conflicting) (?P<access>read|write|load|store)(?: of size (?P<size>\d+))?")
_OTHER_SIDE = "This conflicts with a previous "
_DIES = regex(r"Process terminating with default action of signal \d+ \((?P<signal>SIG\w+)\)")
_BLOCK = regex(
    r"\s*Address (?P<address>0x[0-9a-fA-F]+) is (?P<distance>[\d,]+) bytes (?P<side>after|before|inside) "
    r"(?:a|an|a recently re-allocated) (?:unallocated )?block of size (?P<block>[\d,]+)(?: (?P<state>alloc'd|free'd))?"
)
_ADDRESS = regex(r"\s*Address (?P<address>0x[0-9a-fA-F]+) is ")
_FREED_AT = regex(r"\s*(?:Block was alloc'd at|block was alloc'd at)")
_CAUSES = (
    ("SEGV_MAPERR", regex(r"\s*Access not within mapped region at address (?P<address>0x[0-9A-Fa-f]+)")),
    ("SEGV_ACCERR", regex(r"\s*Bad permissions for mapped region at address (?P<address>0x[0-9A-Fa-f]+)")),
    ("SI_KERNEL", regex(r"\s*General Protection Fault()")),
    ("FPE_INTDIV", regex(r"\s*Integer divide by zero at address ()")),
    ("ILL_ILLOPC", regex(r"\s*Illegal opcode at address (?P<address>0x[0-9A-Fa-f]+)")),
    ("ILL_ILLOPN", regex(r"\s*Illegal operand at address (?P<address>0x[0-9A-Fa-f]+)")),
    ("BUS_ADRALN", regex(r"\s*Invalid address alignment at address (?P<address>0x[0-9A-Fa-f]+)")),
    ("BUS_ADRERR", regex(r"\s*Non-existent physical address at address (?P<address>0x[0-9A-Fa-f]+)")),
)
_FULL = regex(r"\s*Stack overflow in thread #(?P<thread>\d+): can't grow stack to 0x(?P<low>[0-9a-f]+)")
_STACK_SIZE = regex(r"\s*The main thread stack size used in this run was (?P<size>\d+)")
_EXITED = regex(r"\s*Process terminating with exit code (?P<code>\d+)")

_HARMLESS = regex(
    r"(?:address_in_range|Py_ADDRESS_IN_RANGE|_?PyObject_(?:Free|Realloc|Malloc|Calloc)|pymalloc_\w+|_Py_\w*arena_map\w*"
    r"|_dl_\w+|dl_main|decompose_rpath|fillin_rpath|expand_dynamic_string_token|do_lookup_x|index|_dl_map_object\w*)$"
)
_PRELOAD = regex(r"vgpreload_|vg_replace_|(?:hg|drd)_intercepts")
_LOADER = regex(r"/ld[-.][\w.-]*so|(?:^|/)dl-\w+\.[ch]$")
_PYTHON = regex(r"libpython|/python\d?[\d.]*$|obmalloc\.c$")
_PAGE, _ARENA_INDEX = 4096, 0x20
"""Bytes of pymalloc's pool, and the place of its arena's number (Objects/obmalloc.c, struct pool_header)."""


@dataclass
class _Error:
    line: Line
    kind: str
    fields: dict[str, str] = field(default_factory=dict)
    frames: list[Frame] = field(default_factory=list)
    other: list[Frame] = field(default_factory=list)
    freed: list[Frame] = field(default_factory=list)
    allocated: list[Frame] = field(default_factory=list)
    into: list[Frame] | None = None


@dataclass
class _Report:
    pid: int
    errors: list[_Error] = field(default_factory=list)
    now: _Error | None = None
    signal: str | None = None
    dying: _Error | None = None
    code: str | None = None
    address: int | None = None
    full_thread: str | None = None
    stack_size: int | None = None
    exit_code: int | None = None
    last: int = -1


def _read(lines: Sequence[Line], index: int) -> TextReport | None:
    head = _OWN.match(lines[index].text[: backtrace.LONGEST])
    if head is None:
        return None
    report = _Report(int(head["pid"]))
    others = 0
    for at in range(index, min(len(lines), index + REACH)):
        match = _OWN.match(lines[at].text[: backtrace.LONGEST])
        if match is None or int(match["pid"]) != report.pid:
            others += 1
            if others > _OTHERS:
                break
            continue
        others = 0
        report.last = at
        _take(report, match["rest"].rstrip(), lines[at])
        found = report.errors or report.signal is not None
        if match["rest"].startswith("ERROR SUMMARY: ") or (not found and at - index > backtrace.BEFORE):
            break
    if not report.errors and report.signal is None:
        return None
    return TextReport("valgrind", lines[index].number, lines[report.last].number, _crash(report))


def _take(report: _Report, text: str, line: Line) -> None:
    if not text.strip():
        report.now = None
        return
    if text.startswith(_OTHER_SIDE) and report.errors and report.errors[-1].kind == "data race":
        report.now = report.errors[-1]
        report.now.into = report.now.other
        return
    if frame := _frame(text, report.now):
        if report.now is not None and report.now.into is not None:
            report.now.into.append(frame)
        return
    if match := _DIES.match(text):
        report.signal = match["signal"]
        report.now = report.dying = _Error(line, "death")
        report.now.into = report.now.frames
        return
    error = _title(text, line)
    if error is not None:
        report.now = error
        error.into = error.frames
        if len(report.errors) < _MOST:
            report.errors.append(error)
        return
    if report.now is report.dying and report.dying is not None:
        _cause(report, text)
    elif report.now is not None:
        _detail(report.now, text)
    if match := _STACK_SIZE.match(text):
        report.stack_size = int(match["size"])
    if match := _EXITED.match(text):
        report.exit_code = int(match["code"])


def _title(text: str, line: Line) -> _Error | None:
    if match := _INVALID.match(text):
        return _Error(line, "invalid-access", {"access": match["access"], "size": match["size"]})
    if _INVALID_FREE.match(text):
        return _Error(line, "bad-free")
    if _MISMATCHED.match(text):
        return _Error(line, "alloc-dealloc-mismatch")
    if _UNSET.match(text):
        return _Error(line, "use-of-uninitialized-value")
    if text.startswith(_JUMP):
        return _Error(line, "jump")
    if text.startswith(_OVERLAP):
        return _Error(line, "memcpy-param-overlap")
    if match := _RACE.match(text):
        access = {"load": "read", "store": "write"}.get(match["access"], match["access"])
        return _Error(
            line, "data race", {"access": access, "size": match["size"]} if match["size"] else {"access": access}
        )
    return None


def _detail(error: _Error, text: str) -> None:
    """What is said of the address, and whose stack follows."""
    if match := _BLOCK.match(text):
        error.fields |= {
            "address": match["address"],
            "distance": match["distance"].replace(",", ""),
            "block": match["block"].replace(",", ""),
            "side": "inside of" if match["side"] == "inside" else match["side"],
        }
        freed = match["state"] == "free'd"
        error.into = error.freed if freed else error.allocated
        if error.kind == "invalid-access":
            error.kind = "heap-use-after-free" if freed else "heap-buffer-overflow"
        elif error.kind == "bad-free" and freed:
            error.kind = "double-free"
    elif match := _ADDRESS.match(text):
        error.fields["address"] = match["address"]
        error.into = None
        if "on thread" in text and "stack" in text:
            error.kind = "stack-access"
    elif _FREED_AT.match(text):
        error.into = error.allocated
    elif not text.startswith((" ", "Locks held")):
        error.into = None


def _cause(report: _Report, text: str) -> None:
    for code, pattern in _CAUSES:
        if match := pattern.match(text):
            report.code = code
            report.address = backtrace.hexadecimal(match.groupdict().get("address"))
            return
    if match := _FULL.match(text):
        report.full_thread = match["thread"]


def _frame(text: str, error: _Error | None) -> Frame | None:
    match = _FRAME.match(text)
    if match is None:
        return None
    rest = match["rest"]
    place, module = _PLACE.search(rest), _OBJECT.search(rest)
    end = place.start() if place else (module.start() if module else len(rest))
    into = error.into if error is not None else None
    return backtrace.native(
        len(into) if into is not None else 0,
        rest[:end],
        module=module["module"] if module else None,
        source=place["source"] if place else None,
        line=int(place["line"]) if place else None,
        address=backtrace.hexadecimal(match["address"]),
    )


# ---------------------------------------------------------------- the crash


def _crash(report: _Report) -> Crash:
    dying = report.dying
    frames = dying.frames if dying is not None else []
    fault = _fault(report, frames)
    full = report.full_thread is not None
    stack = Stack(guard_hit=True, is_main=report.full_thread == "1", size=report.stack_size) if full else None
    # Of a full stack valgrind sees one frame: the others lie where it cannot read.
    thread = backtrace.thread(frames, crashed=True, stack=stack, cut=full) if frames else None
    ended = Exit(kind="signaled", signal=report.signal) if report.signal else None
    if ended is None and report.exit_code is not None:
        ended = Exit(kind="exited", code=report.exit_code)
    return Crash(
        pid=report.pid,
        exit=ended,
        fault=fault,
        threads=(thread,) if thread is not None else None,
        messages=tuple(_messages(report)) or None,
        gaps=backtrace.gaps(thread) if thread is not None else (),
    )


def _fault(report: _Report, frames: list[Frame]) -> Fault | None:
    if report.signal is None:
        return None
    access: Access | None = None
    before = report.errors[-1] if report.errors else None
    same = before is not None and before.frames and frames and before.frames[0].address == frames[0].address
    if same and before is not None and report.signal in {"SIGSEGV", "SIGBUS"}:
        if before.kind == "jump" or frames[0].address == report.address:
            access = "exec"
        elif before.fields.get("access") in {"read", "write"}:
            access = "read" if before.fields["access"] == "read" else "write"
    return Fault(
        signal=report.signal,
        code=report.code,
        address=None if report.address is None else Address(report.address),
        access=access,
        sent_by_itself=True if report.signal == "SIGABRT" else None,
    )


def _messages(report: _Report) -> list[Message]:
    """The errors that can relate to a death, the first of each place."""
    found: dict[tuple[str, str], Message] = {}
    for error in report.errors:
        mine = _own(error.frames)
        if _is_harmless(error) or error.kind in {"jump", "stack-access"}:
            continue
        if error.kind == "use-of-uninitialized-value" and report.signal is None:
            continue
        fields = {"tool": "Valgrind", "kind": error.kind, **error.fields}
        if mine is not None:
            fields |= {"function": mine.function or ""}
            fields |= {"file": mine.source} if mine.source else {}
            fields |= {"source_line": str(mine.line)} if mine.line is not None else {}
            fields |= {"module": mine.module.rsplit("/", 1)[-1]} if mine.module else {}
        for name, frames in (("freed", error.freed), ("allocated", error.allocated), ("again", error.other)):
            if (frame := _own(frames)) is not None:
                fields[name] = sanitizers.spelled(frame)
        place = (error.kind, f"{fields.get('function')} {fields.get('source_line')}")
        found.setdefault(
            place,
            Message(
                kind="sanitizer",
                text=error.line.text.strip(),
                where=f"log line {error.line.number}",
                line=error.line.number,
                fields=fields,
            ),
        )
    return list(found.values())


def _own(frames: list[Frame]) -> Frame | None:
    return sanitizers.own([frame for frame in frames if not _PRELOAD.search(frame.module or frame.source or "")])


def _is_harmless(error: _Error) -> bool:
    for frame in islice(error.frames, 2):
        if frame.function and _HARMLESS.match(frame.function):
            return True
    if any(_LOADER.search(frame.module or frame.source or "") for frame in islice(error.frames, 4)):
        return True
    # The same of a CPython without names: it reads the number of the arena at the head of a page.
    first = error.frames[0] if error.frames else None
    address = backtrace.hexadecimal(error.fields.get("address"))
    if first is None or address is None or error.fields.get("size") != "4" or address % _PAGE != _ARENA_INDEX:
        return False
    return bool(_PYTHON.search(first.module or first.source or ""))


READER = TextReader(
    kind="valgrind",
    triggers=(
        "== Invalid read of size",
        "== Invalid write of size",
        "== Invalid free()",
        "== Mismatched free()",
        "== Jump to the invalid",
        "== Process terminating with",
        "== Possible data race",
        "== Conflicting ",
        "== Conditional jump or",
        "== Use of uninitialised",
        "== Source and destination overlap",
        "Memcheck, a memory error",
        "Helgrind, a thread error",
        "DRD, a thread error",
    ),
    read=_read,
    reach=REACH,
)
