"""Reports of deaths written by hand, as a triage reads them, for tests of its grouping."""

from __future__ import annotations

from collections.abc import Sequence

from necropsy.triage.deaths import Fingerprint
from necropsy.triage.documents import (
    About,
    Call,
    DeadThread,
    Death,
    DeathReport,
    End,
    Mapped,
    Phrase,
    Repeated,
    ReportDocument,
    Signalled,
    Thrown,
    Verdict,
)
from necropsy.triage.fingerprints import fingerprint

LIBRARY = "/home/user/lib/librows.so"
BUILD = "b1"


def call(function: str | None, at: int, line: str | None = None, module: str | None = "librows.so") -> Call:
    """A native frame; ``at`` is its offset in the library, and frames of one offset were inlined into each other."""
    source, _, number = (line or "").partition(":")
    return Call(
        function=function,
        module=module,
        module_offset=hex(at),
        address=hex(0x7F0000000000 + at),
        source=source or None,
        line=int(number) if number else None,
        owner="native-code",
        found_by="cfi",
    )


def python(*lines: str) -> tuple[Call, ...]:
    """``train.py:7 score`` for each frame, innermost first."""
    found = []
    for line in lines:
        place, _, function = line.partition(" ")
        source, _, number = place.partition(":")
        found.append(Call(function=function, source=source, line=int(number), owner="script"))
    return tuple(found)


def report(
    frames: Sequence[Call] = (),
    *,
    signal: str = "SIGSEGV",
    lines: Sequence[Call] = (),
    said: Phrase | None = None,
    thrown: Thrown | None = None,
    folds: tuple[Repeated, ...] = (),
    build: str | None = BUILD,
    rule: str = "invalid-read",
    summary: str = "",
    libraries: dict[str, str] | None = None,
) -> DeathReport:
    """The report of one death."""
    thread = DeadThread(crashed=True, frames=tuple(frames) or None, python=tuple(lines) or None, folds=folds)
    crash = Death(
        exit=End(kind="signaled", signal=signal),
        fault=Signalled(signal=signal) if frames else None,
        threads=(thread,),
        modules=(Mapped(path=LIBRARY, build_id=build),),
        messages=(said,) if said is not None else None,
        cpp_exception=thrown,
        libraries=libraries,
    )
    return DeathReport(crash=crash, verdict=Verdict(rule=rule, summary=summary))


def check(expression: str) -> Phrase:
    """What a failed CHECK prints."""
    return Phrase(kind="check-failed", text=f"Check failed: {expression}", fields={"expression": expression})


def of(one: DeathReport) -> Fingerprint:
    """Its fingerprint."""
    return fingerprint(one, ReportDocument(schema=1, kind="run", id="d", subject=About(kind="process")))


def keyed(*them: Fingerprint) -> dict[str, Fingerprint]:
    """By their keys, as ``group`` takes them."""
    return {one.key: one for one in them}
