"""Which deaths of a run explain others: a worker that crashed, and the parent that failed because of it.

A parent's death is a consequence only if its own end says so: it passes on the child's signal or exit status, or its
last output names the process, how it ended, or the loss of a worker. Coming later is not enough.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from msgspec.structs import replace

from necropsy import redact
from necropsy.model import Crash, Diagnosis, Evidence, Exit, Fix, Message, Process, Report

if TYPE_CHECKING:
    from necropsy.formats.lost_workers import Loss

ASKED = frozenset({"SIGINT", "SIGPIPE"})
"""Nobody loses a worker by them: Ctrl-C, and a reader that went away."""
STOPPING = frozenset({"SIGTERM", "SIGKILL", "SIGHUP"})
"""What a parent stops its children with, others too: by itself such an end is no crash."""
_SHOWN = 80


def command_of(processes: Sequence[Process]) -> Process | None:
    """The command's own process: the one with that role, else the first that started."""
    return next((one for one in processes if one.role == "command"), processes[0] if processes else None)


def is_native(report: Report) -> bool:
    """The process was killed by a signal, on Windows by an exception; an exit code alone is not a native death."""
    crash, end = report.crash, report.crash.exit
    if crash.fault is not None or end is None:
        return crash.fault is not None
    return end.kind == "signaled" or (end.ntstatus is not None and crash.crashed_thread is not None)


def signal_of(crash: Crash) -> str | None:
    """The signal that ended the process."""
    return crash.fault.signal if crash.fault else (crash.exit.signal if crash.exit else None)


def by_cause(reports: Sequence[Report], processes: Sequence[Process]) -> tuple[Report, ...]:
    """The reports, causes first; each consequence says whose death caused it. Otherwise the order stays as it is."""
    run = RunDeaths(processes)
    deaths = tuple(one for one in reports if is_native(one) and signal_of(one.crash) not in ASKED)
    links = {at: link for at, one in enumerate(reports) if (link := run.link(one, deaths)) is not None}
    told = [run.told(one, links[at]) if at in links else one for at, one in enumerate(reports)]
    told = [run.with_losses(one, deaths) for one in _with_roots(told)]
    causes = {one.consequence_of for one in told} - {None}
    first = {id(one) for one in told if one.pid in causes and one.consequence_of is None}
    first |= {id(one) for one in _before_a_number(told, deaths, run)}
    lost = {death.pid for one in reports if _stood_still(one) for death in run.lost(one, deaths)}
    first |= {id(one) for one in told if one.pid in lost}
    return (*(one for one in told if id(one) in first), *(one for one in told if id(one) not in first))


@dataclass(frozen=True)
class _Link:
    """Why a death is the cause: ``sure`` where it could be no other, ``evidence`` in words."""

    death: Report
    sure: bool
    evidence: Evidence


class RunDeaths:
    """The processes of a run, and what they had to do with each other."""

    def __init__(self, processes: Sequence[Process]) -> None:
        self.own = command_of(processes)
        self.known = {one.pid: one for one in processes}

    def descends(self, pid: int | None, ancestor: int | None) -> bool:
        """Every process of a run descends from the command."""
        if pid is None or ancestor is None or pid == ancestor:
            return False
        return (self.own is not None and ancestor == self.own.pid) or self.is_below(pid, ancestor)

    def is_below(self, pid: int | None, ancestor: int | None) -> bool:
        """The table of processes has the one as a parent of the other, or a parent's parent."""
        seen: set[int] = set()
        while pid is not None and pid not in seen:
            seen.add(pid)
            pid = self.known[pid].parent if pid in self.known else None
            if pid is not None and pid == ancestor:
                return True
        return False

    def ended_by_parent(self, death: Report) -> bool:
        """An ancestor sent the signal: it was meant so."""
        fault = death.crash.fault
        sent = fault is not None and fault.sent_by_itself is False and self.descends(death.pid, fault.sender)
        return sent or self.ended_by_timeout(death)

    def ended_by_timeout(self, death: Report) -> bool:
        """timeout(1) ended it, or itself, because the time was over."""
        fault = death.crash.fault
        if fault is not None and fault.sender is not None and fault.sender != death.pid:
            return self.fired(fault.sender)
        rule = death.verdict.rule if death.verdict is not None else None
        if signal_of(death.crash) != "SIGKILL" or rule == _NO_MEMORY:
            return False
        # Nobody is told who sends SIGKILL; timeout sends it to its whole group, itself among them.
        return any(self.fired(pid) for pid in self.known if pid == death.pid or self.is_below(death.pid, pid))

    def fired(self, pid: int) -> bool:
        """The process is timeout(1), and what it ran took longer than it may."""
        process = self.known.get(pid)
        from necropsy.formats import exit_status

        limit = exit_status.time_limit_of(process.command or ()) if process is not None else None
        wall_s = process.wall_s if process is not None else None
        return limit is not None and wall_s is not None and wall_s >= limit

    def is_unwanted(self, death: Report) -> bool:
        """Nobody wanted it: no timeout was over, and no parent ended it and then ended well itself."""
        fault = death.crash.fault
        if self.ended_by_timeout(death):
            return False
        if fault is None or fault.sent_by_itself is not False or not self.is_below(death.pid, fault.sender):
            return True
        end = self.known[fault.sender].exit if fault.sender in self.known else None
        return end is None or end.kind != "exited" or end.code != 0

    def crashed(self, death: Report) -> bool:
        """It ended as nobody wants it: by a crash, or because there was no memory."""
        if self.ended_by_parent(death):
            return False
        rule = death.verdict.rule if death.verdict is not None else None
        return signal_of(death.crash) not in STOPPING or rule == _NO_MEMORY

    def end_of(self, report: Report) -> datetime | None:
        """When the process ended."""
        if report.crash.at is not None:
            return _moment(report.crash.at)
        process = self.known.get(report.pid) if report.pid is not None else None
        start = _moment(process.started) if process is not None else None
        if process is None or start is None or process.wall_s is None:
            return None
        return start + timedelta(seconds=process.wall_s)

    def before(self, report: Report, deaths: Iterable[Report]) -> list[Report]:
        """The deaths of processes that it had started, by time, but for those that it had wanted."""
        end = self.end_of(report)
        found = []
        for death in deaths:
            at = self.end_of(death)
            late = end is not None and at is not None and at > end
            if self.descends(death.pid, report.pid) and not late and not self.ended_by_parent(death):
                found.append(death)
        return sorted(found, key=lambda one: one.crash.at or "9")

    def link(self, report: Report, deaths: Sequence[Report]) -> _Link | None:
        """The death that this end follows from, and why that is known."""
        if not _may_follow(report):
            return None
        before = self.before(report, deaths)
        if not before:
            return None
        return self._passed_on(report, before) or self._said(report, before)

    # ------------------------------------------------------------ by its status

    def _passed_on(self, report: Report, before: Sequence[Report]) -> _Link | None:
        """It ended as the other had: by the same signal, sent by itself, or by an exit code that represents it."""
        same = [one for one in before if _stands_for(report.crash, one.crash)]
        if not same:
            return None
        death = same[-1]  # the last one that it waited for
        seen = f"{_how(report.crash)}, after process {death.pid} had died by {_how(death.crash)}"
        evidence = Evidence(claim="it passed on how another process ended", seen=seen, where="exit status")
        return _Link(death, len({_how(one.crash) for one in same}) == 1, evidence)

    # ------------------------------------------------------------ by its words

    def _said(self, report: Report, before: Sequence[Report]) -> _Link | None:
        tail = report.crash.log_tail or ""
        if is_native(report):
            return None
        from necropsy.formats import lost_workers

        crashed = [one for one in before if self.crashed(one)]
        traceback = _last_traceback(report.crash)
        for loss in lost_workers.last_words(tail, traceback):
            fits = [one for one in _meant(loss, before, crashed) if loss.text not in (one.crash.log_tail or "")]
            if fits:
                evidence = Evidence(claim="its last output reports the loss of a process", seen=loss.text, where="log")
                return _Link(fits[0], loss.pid is not None or (loss.end is not None and len(fits) == 1), evidence)
        return self._named(tail, traceback, before)

    def _named(self, tail: str, traceback: Message | None, before: Sequence[Report]) -> _Link | None:
        """Words that nobody knows, with the number of a process that died, or the way in which it did."""
        from necropsy.formats import lost_workers

        for text in lost_workers.last_lines(tail, traceback):
            for death in before:
                named = death.pid is not None and lost_workers.names(text, death.pid, signal_of(death.crash))
                if named and text not in (death.crash.log_tail or ""):  # not written before the death
                    claim = "its last output names a process that died, or how it died"
                    evidence = Evidence(claim=claim, seen=text, where="log")
                    return _Link(death, False, evidence)
        return None

    # ------------------------------------------------------------ what is told

    def told(self, report: Report, link: _Link) -> Report:
        """The report of an end that follows from another: it names that one, and has no cause of its own."""
        death, verdict = link.death, report.verdict
        who = f"process {death.pid}{self._command(death.pid)}"
        how = _how(death.crash)
        died = Evidence(claim="a process that it had started died before", seen=f"{who}, by {how}", where="this run")
        kept = verdict is not None and verdict.rule in _OF_AN_END
        rule = verdict.rule if verdict is not None and kept else "killed-by-signal" if is_native(report) else _PLAIN
        return replace(
            report,
            consequence_of=death.pid,
            alternatives=(),
            verdict=Diagnosis(
                rule=rule,
                title="A process that it depended on had died",
                summary=f"This process ended because {who} had died by {how}: see above.",
                severity="note",
                confidence="certain" if link.sure else "likely",
                culprit=verdict.culprit if verdict is not None and kept else None,
                evidence=(died, link.evidence, *(verdict.evidence if verdict is not None and kept else ())),
                fixes=(Fix(text=f"See the report of process {death.pid}: this end follows from that death."),),
                references=verdict.references if verdict is not None and kept else (),
            ),
        )

    def lost(self, report: Report, deaths: Iterable[Report]) -> list[Report]:
        """The deaths before it of processes that it may wait for in vain: by a crash, or by SIGKILL."""
        return [one for one in self.before(report, deaths) if self.crashed(one) or signal_of(one.crash) == "SIGKILL"]

    def with_losses(self, report: Report, deaths: Sequence[Report]) -> Report:
        """The report with the processes that it had lost before: of one that stood still, or that speaks of a loss."""
        if report.consequence_of is not None or report.verdict is None:
            return report
        if _stood_still(report):
            lost = self.lost(report, deaths)[:1]
            found: Sequence[tuple[int | None, str]] = [(one.pid, f"had died by {_how(one.crash)}") for one in lost]
        else:
            found = self._failed_before(report)[:1]
        if not found:
            return report
        pid, how = found[0]
        died = Evidence(
            claim="a process that it had started ended badly before",
            seen=f"process {pid}{self._command(pid)}, which {how}",
            where="this run",
        )
        verdict = report.verdict
        summary = f"{verdict.summary} Process {pid}, which it had started, {how} before."
        return replace(report, verdict=replace(verdict, summary=summary, evidence=(*verdict.evidence, died)))

    def _failed_before(self, report: Report) -> list[tuple[int, str]]:
        end, tail = self.end_of(report), report.crash.log_tail or ""
        if is_native(report) or report.pid is None or end is None:
            return []
        from necropsy.formats import lost_workers

        if next(lost_workers.last_words(tail, _last_traceback(report.crash)), None) is None:
            return []
        failed = [
            (started + timedelta(seconds=one.wall_s), one.pid, one.exit.code)
            for one in self.known.values()
            if one.exit is not None
            and one.exit.kind == "exited"
            and one.exit.code
            and one.wall_s is not None
            and (started := _moment(one.started)) is not None
            and self.is_below(one.pid, report.pid)
        ]
        return [(pid, f"had ended with exit code {code}") for at, pid, code in sorted(failed) if at <= end]

    def _command(self, pid: int | None) -> str:
        process = self.known.get(pid) if pid is not None else None
        if process is None or not process.command:
            return ""
        text = " ".join(" ".join(redact.argv(process.command)).split())
        return f" ({text if len(text) <= _SHOWN else text[:_SHOWN] + ' ...'})"


_PLAIN, _NO_MEMORY = "exit-status-only", "out-of-memory-killed"
_OF_AN_END = frozenset({"python-exception", _PLAIN, "killed-by-signal"})
"""Rules that judge nothing but the end itself: of what another process wrote into the same log, others may speak."""


def _may_follow(report: Report) -> bool:
    crash = report.crash
    fault, end = crash.fault, crash.exit
    if crash.stop_request is not None:
        return False  # somebody asked it to end, and perhaps the others too
    if fault is None:
        return end is not None and end.kind == "exited" and end.code not in {None, 0}
    # abort() sends a signal to its own thread too, and has a reason of its own.
    passed = fault.signal != "SIGABRT" or fault.code == "SI_USER"
    return fault.sent_by_itself is True and not fault.handled_first and passed


def _last_traceback(crash: Crash) -> Message | None:
    found = (
        one for one in reversed(crash.messages or ()) if one.kind == "python-traceback" and "ignored" not in one.fields
    )
    return next(found, None)


def _stood_still(report: Report) -> bool:
    return report.verdict is not None and report.verdict.rule == "hang"


def _stands_for(end: Crash, death: Crash) -> bool:
    if end.fault is not None:
        return end.fault.signal in {signal_of(death), death.exit.signal if death.exit is not None else None}
    if end.exit is None or end.exit.code is None:
        return False
    if death.exit is not None and death.exit.ntstatus is not None:
        return end.exit.ntstatus is not None and end.exit.ntstatus.value == death.exit.ntstatus.value
    from necropsy.formats.exit_status import signal_number

    number = signal_number(signal_of(death) or "")
    return number is not None and end.exit.code in {128 + number, 256 - number}


def _meant(loss: Loss, before: Sequence[Report], crashed: Sequence[Report]) -> list[Report]:
    """Likeliest first."""
    if loss.pid is not None:
        return [one for one in before if one.pid == loss.pid]
    if loss.only_crashes:
        return list(crashed)
    if loss.end is not None:
        return [one for one in before if _same_end(loss.end, one.crash)]
    return [*crashed, *(one for one in before if one not in crashed)]


def _same_end(said: Exit, death: Crash) -> bool:
    if said.ntstatus is not None:
        status = death.exit.ntstatus if death.exit is not None else None
        return status is not None and status.value == said.ntstatus.value
    return said.signal is not None and said.signal == signal_of(death)


def _how(crash: Crash) -> str:
    """``SIGSEGV``, ``exit code 139``, ``0xC0000005``."""
    end = crash.exit
    if end is not None and end.ntstatus is not None:
        return end.ntstatus.value
    signal = signal_of(crash)
    return signal or (f"exit code {end.code}" if end is not None and end.code is not None else "an unknown end")


def _with_roots(told: Sequence[Report]) -> list[Report]:
    """A consequence of a consequence names the first cause."""
    links = {one.pid: one for one in told if one.consequence_of is not None}
    return [_with_root(one, links) for one in told]


def _with_root(report: Report, links: Mapping[int | None, Report]) -> Report:
    seen, last = {report.pid}, report
    while last.consequence_of in links and last.consequence_of not in seen:
        seen.add(last.consequence_of)
        last = links[last.consequence_of]
    if last.consequence_of == report.consequence_of or last.verdict is None or report.verdict is None:
        return report
    verdict = replace(report.verdict, summary=last.verdict.summary, fixes=last.verdict.fixes)
    return replace(report, consequence_of=last.consequence_of, verdict=verdict)


def _before_a_number(told: Sequence[Report], deaths: Sequence[Report], run: RunDeaths) -> list[Report]:
    """Crashes that were seen before the command ended with an exit code that nothing explains."""
    own = next((one for one in told if run.own is not None and one.pid == run.own.pid), None)
    if own is None or own.consequence_of is not None or is_native(own):
        return []
    if own.verdict is not None and own.verdict.rule != _PLAIN:
        return []
    pids = {one.pid for one in run.before(own, deaths) if run.crashed(one)}
    return [one for one in told if one.pid in pids and is_native(one)]


def _moment(text: str | None) -> datetime | None:
    """None if it is not ISO 8601, or has no time zone."""
    try:
        moment = datetime.fromisoformat(re.sub("Z$", "+00:00", text or ""))
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None
