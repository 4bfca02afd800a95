"""Findings -> findings with a status: confirmed, refuted or inconclusive, each with the call and how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath

import msgspec

from necropsy.confirm import address_sanitizer
from necropsy.confirm.compiler import Builder
from necropsy.errors import NecropsyError
from necropsy.model import Diagnosis, Evidence, Experiment, Gap
from necropsy.model.concluded import Status
from necropsy.prove import valid_calls
from necropsy.prove.campaign import Campaign
from necropsy.prove.outcomes import CallDeath, Survived
from necropsy.prove.predictions import OVERFLOWS, PREDICTIONS, Prediction
from necropsy.prove.session import Limits, Session

PLAIN = ("-O1", "-g", "-fno-optimize-sibling-calls")
SANITIZED = (*address_sanitizer.FLAGS, "-fno-sanitize-recover=bounds,signed-integer-overflow")
_SECONDS = 60.0
"""For the calls of one op in one build."""
_LIBRARIES = (".so", ".pyd", ".dll")

Watch = Callable[[str], None]


@dataclass(frozen=True)
class Verdict:
    """What the calls say of one finding."""

    status: Status
    outcome: str
    call: str | None = None
    calls: int = 0


@dataclass
class Prover:
    """Builds each source with findings at most twice, and tries what its findings predict."""

    python: str
    place: Path
    """The folder for builds."""
    stack: int
    sources: Mapping[str, Sequence[str]]
    """Ops by C++ source."""
    watch: Watch
    gaps: list[Gap] = field(default_factory=list)
    _builders: dict[str, Builder] = field(default_factory=dict)
    _sessions: dict[tuple[str, bool], Session | NecropsyError] = field(default_factory=dict)
    _campaigns: dict[tuple[str, bool, str], Campaign] = field(default_factory=dict)

    def proved(self, findings: Sequence[Diagnosis]) -> tuple[Diagnosis, ...]:
        """Each finding on an op with its status; others as they are."""
        done: dict[int, Diagnosis] = {}
        by_source = sorted(range(len(findings)), key=lambda at: self._source(findings[at]) or "")
        last = None
        try:
            for number, at in enumerate(by_source, 1):
                one, source = findings[at], self._source(findings[at])
                if source is None:
                    continue
                if source != last:
                    self._close()
                    last = source
                self.watch(f"{number} of {len(findings)} findings: {one.rule} in {PurePath(source).name}")
                try:
                    verdict = self._verdict(one, source)
                except NecropsyError as error:
                    verdict = Verdict("inconclusive", str(error))
                    gap = Gap(part=f"proof of {PurePath(source).name}", why=str(error))
                    self.gaps += [gap] if gap not in self.gaps else []
                done[at] = _told(one, verdict)
        finally:
            self._close()
        return tuple(done.get(at, one) for at, one in enumerate(findings))

    def _source(self, one: Diagnosis) -> str | None:
        """The C++ source to build, or the library; None if the finding is on neither."""
        paths = [each.path for each in one.locations]
        named = one.culprit.op if one.culprit is not None else None
        of_op = [path for path, ops in self.sources.items() if named is not None and named in ops]
        mine = [path for path in paths if path in self.sources]
        libraries = [path for path in paths if path.endswith(_LIBRARIES)]
        return next(iter([*(path for path in mine if path in of_op), *of_op, *mine, *libraries]), None)

    def _verdict(self, one: Diagnosis, source: str) -> Verdict:
        prediction = PREDICTIONS.get(one.rule)
        if prediction is None:
            return Verdict("inconclusive", "one call of the op cannot show it")
        is_library = source.endswith(_LIBRARIES)
        session = self._session(source, plain=prediction.plain or is_library)
        named = one.culprit.op if one.culprit is not None else None
        names = [named] if named in session.ops else sorted(session.ops)
        if not names:
            return Verdict("inconclusive", f"{PurePath(source).name} registers no op")
        verdicts = []
        for name in names:
            why = valid_calls.cannot_be_called(session.ops[name])
            verdict = (
                Verdict("inconclusive", why)
                if why is not None
                else self._tried(one, prediction, self._campaign(source, session, name))
            )
            if verdict.status == "confirmed":
                return verdict
            verdicts.append(verdict)
        return next((each for each in verdicts if each.status == "inconclusive"), verdicts[0])

    def _campaign(self, source: str, session: Session, name: str) -> Campaign:
        key = (source, session is self._sessions.get((source, True)), name)
        if key not in self._campaigns:
            self._campaigns[key] = Campaign(session, name, time.monotonic() + _SECONDS)
        return self._campaigns[key]

    def _tried(self, one: Diagnosis, prediction: Prediction, campaign: Campaign) -> Verdict:
        def fits(death: CallDeath) -> bool:
            return prediction.fits(death) and _is_of(one, death, prediction)

        for kind in ("", *prediction.calls):
            if kind:
                campaign.vary(kind, fits)
            else:
                campaign.search(fits)
            for death in filter(fits, list(campaign.deaths)):
                again = campaign.again(death)
                if isinstance(again, CallDeath) and fits(again):
                    return Verdict("confirmed", again.said, again.call, len(campaign.ended))
                campaign.deaths.remove(death)
        return _not_confirmed(prediction, campaign)

    def _session(self, source: str, *, plain: bool) -> Session:
        """The process with the loaded build; raises ``NecropsyError`` if that fails."""
        key = (source, plain)
        if key not in self._sessions:
            try:
                library = Path(source).resolve() if source.endswith(_LIBRARIES) else self._built(source, plain=plain)
                self._sessions[key] = Session(self.python, library, Limits(stack=self.stack))
            except NecropsyError as error:
                self._sessions[key] = error
            except OSError as error:
                self._sessions[key] = NecropsyError(f"cannot build {PurePath(source).name}: {error}")
        found = self._sessions[key]
        if isinstance(found, NecropsyError):
            raise found
        return found

    def _built(self, source: str, *, plain: bool) -> Path:
        path = Path(source).resolve()
        if source not in self._builders:
            self._builders[source] = Builder(path, Path(f"{path.stem}.so"), self.python, self.place)
        self.watch(f"building {path.name}")
        flags = PLAIN if plain or address_sanitizer.runtime() is None else SANITIZED
        return self._builders[source].build(flags)

    def _close(self) -> None:
        for one in self._sessions.values():
            if isinstance(one, Session):
                one.close()
        self._sessions.clear()
        self._campaigns.clear()


def _not_confirmed(prediction: Prediction, campaign: Campaign) -> Verdict:
    made = len(campaign.ended)
    if not campaign.bases:
        errors = [end.said for end in campaign.ended.values() if isinstance(end, Survived)]
        last = f"; the first error: {errors[0]}" if errors else ""
        return Verdict("inconclusive", f"none of {made:,} calls was accepted by {campaign.name}{last}", calls=made)
    others = f"; {len(campaign.deaths)} died elsewhere" if campaign.deaths else ""
    whole = not campaign.was_cut and all(campaign.tried.get(kind) for kind in prediction.calls)
    if prediction.complete and not campaign.deaths and whole:
        return Verdict("refuted", f"each of {made:,} calls of {campaign.name} gave a value or an error", calls=made)
    return Verdict("inconclusive", f"none of {made:,} calls of {campaign.name} died there{others}", calls=made)


def _is_of(one: Diagnosis, death: CallDeath, prediction: Prediction) -> bool:
    """The process died on one of the finding's lines, or with a full stack in its function."""
    if not death.frames:
        # Nothing says where: a full stack, a limit, or a machine without AddressSanitizer's runtime.
        return death.kind in {"time", "memory"} or address_sanitizer.runtime() is None
    function = one.culprit.function if one.culprit is not None else None
    if prediction.deaths == OVERFLOWS and function is not None and death.is_in(function):
        return True
    return any(
        each.line is not None and death.passes(each.path, each.line, max(each.line, each.end_line or 0))
        for each in one.locations[:1]
    )


def _told(one: Diagnosis, verdict: Verdict) -> Diagnosis:
    """Add the status, and the call that shows it as evidence."""
    row = Experiment(
        name="call",
        change=verdict.call or "calls of the op on the border of what it accepts",
        predicts="the process dies there",
        runs=verdict.calls,
        crashed=1 if verdict.call is not None else 0,
        outcome=verdict.outcome,
        rule=one.rule,
        conclusive=verdict.status != "inconclusive",
    )
    evidence = one.evidence
    if verdict.call is not None:
        shown = Evidence(
            claim="this call ends the process", seen=verdict.call, where="a run of the op in a child process"
        )
        evidence = (*evidence, shown, Evidence(claim="how it ended", seen=verdict.outcome, where=None))
    return msgspec.structs.replace(one, status=verdict.status, evidence=evidence, experiments=(*one.experiments, row))
