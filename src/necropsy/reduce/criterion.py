"""Is it the same death? The signature, and what tells two causes behind one signature apart."""

from __future__ import annotations

import re
from dataclasses import dataclass

from necropsy.model import Crash, Report

_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+")
_SAYS_WHAT = frozenset({"check-failed", "assertion", "libstdcxx-assertion"})
_OF_THE_HEAP = "glibc-abort"
_SMALL = 0x10000
"""Addresses below are offsets from a null pointer: nothing is mapped there (vm.mmap_min_addr)."""


@dataclass(frozen=True)
class Death:
    """What identifies a death; ``signature`` alone is what reports compare."""

    signature: str
    rule: str | None
    instruction: tuple[str, str] | None
    """The library and the offset in it of the code that faulted; None where a recursion ends by chance."""
    access: str | None
    address: str | None
    """``null``, ``small``, ``guard`` (below the end of a stack) or ``wild``."""
    message: str | None
    """Of a failed check, an exception or an assertion, with its numbers masked; not what glibc says of its heap."""
    op: str | None = None
    """The TensorFlow op whose kernel ran: signatures leave out template arguments, which tell some kernels apart."""

    @classmethod
    def of(cls, report: Report | None) -> Death | None:
        """The death that a report is about; None where it is no native one."""
        if report is None or report.signature is None or not _is_native(report):
            return None
        crash = report.crash
        rule = report.verdict.rule if report.verdict is not None else None
        culprit = report.verdict.culprit if report.verdict is not None else None
        exhausted = rule is not None and rule.startswith("stack-overflow")
        return cls(
            signature=report.signature,
            rule=rule,
            instruction=None if exhausted or rule is None else _instruction(crash),
            access=crash.fault.access if crash.fault is not None and not exhausted else None,
            address=_address(crash),
            message=_message(crash),
            op=culprit.op if culprit is not None else None,
        )

    def is_same(self, other: Death | None) -> bool:
        """The same cause at the same place."""
        return other == self

    @property
    def title(self) -> str:
        """For a list of deaths."""
        return self.signature


def _is_native(report: Report) -> bool:
    exit_ = report.crash.exit
    if exit_ is not None and exit_.kind == "signaled":
        return True
    if report.crash.fault is not None and report.crash.fault.handled_first:
        return True
    return exit_ is not None and exit_.ntstatus is not None


def _instruction(crash: Crash) -> tuple[str, str] | None:
    thread = crash.crashed_thread
    own = [
        one for one in (thread.frames if thread else None) or () if one.owner in {"native-code", "package", "framework"}
    ]
    first = next((one for one in own if one.module and one.module_offset), None)
    if first is None or first.module is None or first.module_offset is None:
        return None
    return first.module.rsplit("/", 1)[-1], str(first.module_offset)


def _address(crash: Crash) -> str | None:
    fault = crash.fault
    if fault is None or fault.address is None:
        return None
    thread = crash.crashed_thread
    if thread is not None and thread.stack is not None and thread.stack.guard_hit:
        return "guard"
    return "null" if fault.address == 0 else "small" if fault.address < _SMALL else "wild"


def _message(crash: Crash) -> str | None:
    text = next((one.text for one in crash.messages or () if one.kind in _SAYS_WHAT), None)
    if text is None and any(one.kind == _OF_THE_HEAP for one in crash.messages or ()):
        # Which of its checks finds one and the same double free depends on how full its lists are.
        return None
    text = text or crash.abort_message or (crash.cpp_exception.what if crash.cpp_exception is not None else None)
    if not text:
        return None
    # Tools and loggers write times and places before the text.
    return _NUMBER.sub("N", text.strip())
