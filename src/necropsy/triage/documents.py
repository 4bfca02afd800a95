"""The parts of our documents that a triage needs. Other fields are skipped without being built: ten times faster.

The names are those of the JSON document (``necropsy.model``).
"""

from __future__ import annotations

import msgspec


class Named(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Base: part of a document."""


class Place(Named, frozen=True, gc=False, kw_only=True):
    """``PythonPlace``."""

    function: str | None = None
    file: str | None = None
    line: int | None = None


class Blamed(Named, frozen=True, gc=False, kw_only=True):
    """``Culprit``."""

    function: str | None = None
    module: str | None = None
    source: str | None = None
    line: int | None = None
    python: Place | None = None
    op: str | None = None
    kernel: str | None = None
    owner: str | None = None
    package: str | None = None
    version: str | None = None


class Verdict(Named, frozen=True, gc=False, kw_only=True):
    """``Diagnosis``."""

    rule: str
    title: str = ""
    summary: str = ""
    confidence: str = "possible"
    culprit: Blamed | None = None


class Call(Named, frozen=True, gc=False, kw_only=True):
    """``Frame``."""

    index: int = 0
    function: str | None = None
    module: str | None = None
    module_offset: str | None = None
    address: str | None = None
    source: str | None = None
    line: int | None = None
    stack_bytes: int | None = None
    found_by: str | None = None
    owner: str | None = None


class Repeated(Named, frozen=True, gc=False, kw_only=True):
    """``Fold``."""

    period: int = 0
    times: int = 0
    functions: tuple[str, ...] = ()
    modules: tuple[str | None, ...] = ()
    bytes_per_period: float | None = None


class DeadThread(Named, frozen=True, gc=False, kw_only=True):
    """``Thread``."""

    tid: int | None = None
    crashed: bool = False
    python: tuple[Call, ...] | None = None
    frames: tuple[Call, ...] | None = None
    frames_total: int | None = None
    folds: tuple[Repeated, ...] = ()
    largest: tuple[Call, ...] = ()


class Subcode(Named, frozen=True, gc=False, kw_only=True):
    """``FastFail``."""

    code: int = 0


class Status(Named, frozen=True, gc=False, kw_only=True):
    """``NtStatus``."""

    value: str
    name: str | None = None
    fast_fail: Subcode | None = None


class End(Named, frozen=True, gc=False, kw_only=True):
    """``Exit``."""

    kind: str
    code: int | None = None
    signal: str | None = None
    ntstatus: Status | None = None


class Signalled(Named, frozen=True, gc=False, kw_only=True):
    """``Fault``."""

    signal: str
    code: str | None = None
    address: str | None = None
    access: str | None = None
    sender: int | None = None


class StopAsked(Named, frozen=True, gc=False, kw_only=True):
    """``StopRequest``."""

    signal: str


class Mapped(Named, frozen=True, gc=False, kw_only=True):
    """``Module``."""

    path: str
    build_id: str | None = None
    version: str | None = None


class Phrase(Named, frozen=True, gc=False, kw_only=True):
    """``Message``."""

    kind: str
    text: str = ""
    fields: dict[str, str] = {}


class Thrown(Named, frozen=True, gc=False, kw_only=True):
    """``CppException``."""

    type: str | None = None
    what: str | None = None


class Surroundings(Named, frozen=True, gc=False, kw_only=True):
    """``Environment``."""

    variables: dict[str, str] | None = None


class Death(Named, frozen=True, gc=False, kw_only=True):
    """``Crash``."""

    pid: int | None = None
    at: str | None = None
    exit: End | None = None
    fault: Signalled | None = None
    stop_request: StopAsked | None = None
    threads: tuple[DeadThread, ...] | None = None
    modules: tuple[Mapped, ...] | None = None
    libraries: dict[str, str] | None = None
    messages: tuple[Phrase, ...] | None = None
    abort_message: str | None = None
    cpp_exception: Thrown | None = None
    environment: Surroundings | None = None

    @property
    def crashed_thread(self) -> DeadThread | None:
        """The thread that took the fatal signal."""
        return next((one for one in self.threads or () if one.crashed), None)


class DeathReport(Named, frozen=True, gc=False, kw_only=True):
    """``Report``."""

    crash: Death
    pid: int | None = None
    consequence_of: int | None = None
    signature: str | None = None
    verdict: Verdict | None = None


class About(Named, frozen=True, gc=False, kw_only=True):
    """``Subject``."""

    kind: str
    path: str | None = None


class Member(Named, frozen=True, gc=False, kw_only=True):
    """``Process``."""

    pid: int
    role: str | None = None


class ReportDocument(Named, frozen=True, gc=False, kw_only=True):
    """``Document``."""

    schema: int
    kind: str
    id: str
    subject: About
    host: str | None = None
    """Where it ran."""
    processes: tuple[Member, ...] = ()
    reports: tuple[DeathReport, ...] = ()
