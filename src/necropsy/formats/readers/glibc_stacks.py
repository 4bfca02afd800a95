"""The stacks that glibc prints, and those that others print in the form of its ``backtrace_symbols``."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from necropsy.formats import backtrace
from necropsy.formats.frame_lines import symbols_line
from necropsy.formats.lines import Line
from necropsy.formats.stack_forms import SIGNAL_NAME, StackForm
from necropsy.lazy_re import regex
from necropsy.model import Address, Crash, Frame, Mapping, Module

_WRITES, _FETCHES = 1 << 1, 1 << 4
"""Bits of x86's page-fault error code (Intel SDM, volume 3, 4.7)."""
_PAGE_FAULT = 14
_MOST_MAPPINGS = 1000

_MAP = regex(r"======= Memory map: =+")
_MAPPING = regex(
    r"(?P<low>[0-9a-f]{6,16})-(?P<high>[0-9a-f]{6,16}) (?P<permissions>[r-][w-][x-][sp]) [0-9a-f]+ [0-9a-f:]+ \d+ *"
    r"(?P<path>\S.*)?$"
)
_REGISTER = regex(r"\b(?P<name>R[A-Z0-9]{1,2}|CR2|RIP|Trap|Error): +(?P<value>[0-9a-f]{8,16})\b")


def _bt_frame(text: str, count: int) -> Frame | None:
    return symbols_line(text, count) if "[bt]" in text else None


def _memory_map(crash: Crash, lines: Sequence[Line], last: int) -> tuple[Crash, int]:
    if last + 1 >= len(lines) or _MAP.search(lines[last + 1].text[: backtrace.LONGEST]) is None:
        return crash, last
    spans: dict[str, tuple[int, int]] = {}
    last += 1
    for at in range(last + 1, min(len(lines), last + 1 + _MOST_MAPPINGS)):
        one = _mapping(lines[at].text)
        if one is None:
            break
        last = at
        if one.path is not None and one.path.startswith("/"):
            low, high = spans.get(one.path, (one.low, one.high))
            spans[one.path] = min(low, one.low), max(high, one.high)
    found = tuple(Module(path=path, low=Address(low), high=Address(high)) for path, (low, high) in spans.items())
    return msgspec.structs.replace(crash, modules=found or None), last


def _mapping(text: str) -> Mapping | None:
    match = _MAPPING.match(backtrace.bare(text))
    if match is None:
        return None
    low, high = Address(match["low"], 16), Address(match["high"], 16)
    return Mapping(low=low, high=high, permissions=match["permissions"], path=match["path"])


def _registers(crash: Crash, lines: Sequence[Line], last: int) -> tuple[Crash, int]:
    """Of a page fault the address is in CR2, and how it was accessed in the error code."""
    rows = (line.text[: backtrace.LONGEST] for line in lines[: last + 1 if crash.threads else 60])
    values = {match["name"]: int(match["value"], 16) for row in rows for match in _REGISTER.finditer(row)}
    registers = {name.lower(): Address(value) for name, value in values.items() if name.startswith("R")}
    fault = crash.fault
    if fault is not None and fault.signal in {"SIGSEGV", "SIGBUS"} and values.get("Trap") == _PAGE_FAULT:
        error, address = values.get("Error", 0), values.get("CR2")
        fault = msgspec.structs.replace(
            fault,
            address=None if address is None else Address(address),
            access="exec" if error & _FETCHES else "write" if error & _WRITES else "read",
        )
    return msgspec.structs.replace(crash, fault=fault, registers=registers or None), last


FORMS = (
    # /lib/x86_64-linux-gnu/libc.so.6(+0x777e5)[0x7f46e14a77e5]
    # sysdeps/unix/sysv/linux/libc_fatal.c of glibc up to 2.25.
    StackForm(
        kind="glibc",
        triggers=("======= Backtrace: =========",),
        frames=(symbols_line,),
        head=5,
        reach=1500,
        with_handler=False,
        around=_memory_map,
    ),
    # debug/catchsegv.sh and libSegFault.so of glibc 2.2 to 2.34.
    StackForm(
        kind="glibc",
        triggers=("Register dump:",),
        frames=(symbols_line,),
        needs="signal",
        above=(regex(rf"\*\*\* (?:{SIGNAL_NAME}|signal (?P<number>\d{{1,2}})\b)"),),
        reach_above=8,
        from_above=True,
        head=60,
        reach=1500,
        with_handler=False,
        around=_registers,
    ),
    # Intel's and PathScale's PSM, which MPI programs load.
    StackForm(
        kind="glibc",
        triggers=(" terminated with signal ",),
        facts=(
            regex(
                r"[^\s:]{1,200}:(?P<pid>\d{1,10}) terminated with signal (?P<number>\d{1,2}) at "
                r"PC=(?P<pc>[0-9a-f]{1,16}) SP=[0-9a-f]{1,16}\. +Backtrace:"
            ),
        ),
        frames=(symbols_line,),
        needs="signal",
        least=0,
        head=5,
        reach=1500,
    ),
    #   [bt] (0) /usr/lib/libmxnet.so(+0x3c9c0a) [0x7f8f3f0c4c0a]
    # dmlc-core's include/dmlc/logging.h (MXNet, XGBoost, TVM, DGL): of a Python exception unless a signal is named.
    StackForm(
        kind="glibc",
        triggers=("[bt] (0)", "[bt] (1)"),
        frames=(_bt_frame,),
        dies=False,
        above=(
            regex(r"(?P<begin>(?:Stack trace returned \d{1,9} entries|Stack trace|Backtrace):$)"),
            regex(rf"^{SIGNAL_NAME}(?:: \d{{1,9}})?$"),
        ),
        reach_above=8,
        from_above=True,
        head=3,
        reach=1500,
    ),
)

READERS = tuple(form.reader() for form in FORMS)
