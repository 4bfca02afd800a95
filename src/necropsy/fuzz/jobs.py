"""``necropsy fuzz --jobs N``: several processes fuzz the ops of a target, and what they find becomes one document.

Where there are fewer ops than processes, further seeds are tried on each op.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Protocol

import msgspec

from necropsy.document import new_id
from necropsy.errors import NecropsyError
from necropsy.fuzz.causes import is_same_cause
from necropsy.fuzz.definitions import OpDefinition
from necropsy.fuzz.op_campaigns import Interrupts, Options, Watch
from necropsy.fuzz.opened_target import chosen, read_target
from necropsy.fuzz.recorded_calls import Recorded, recorded
from necropsy.fuzz.slot import Slot, SlotLostError, Unit
from necropsy.model import Document, FuzzFinding, Fuzzing, FuzzTarget, Gap, Subject

_LOOK_S = 0.1
_MOST_LOSSES = 2
"""A campaign whose process ended is run again this many times in all."""


class AnySlot(Protocol):
    """What runs campaigns: a process here, or one on another machine."""

    def ops(self) -> tuple[OpDefinition, ...]:
        """Wait until the target is loaded."""

    def run(self, unit: Unit, first: Recorded, watch: Watch) -> tuple[Document, bool]:
        """Run a campaign: its document, and whether it was interrupted."""

    def interrupt(self) -> None:
        """End the campaign in order."""

    def close(self) -> None:
        """End what it has started."""


def fuzzed_by_jobs(
    target: str, options: Options, jobs: int, watch: Watch, slot: Callable[[str, Options], AnySlot] = Slot
) -> tuple[Document, KeyboardInterrupt | None]:
    """Run campaigns in ``jobs`` processes: the document on all of them, and the interrupt that ended them early.

    ``slot`` starts a process.

    Raises:
        NecropsyError: the target cannot be loaded, or a test cannot be written.

    """
    read = read_target(target)
    kept = {one.resolve() for one in options.tests.glob("test_*.py")}
    watch("loading the target")
    with Interrupts() as interrupts, ExitStack() as stack:
        slots = [stack.enter_context(closing(slot(target, options))) for _ in range(jobs)]
        ops = chosen(slots[0].ops(), options.ops, target)
        first = Recorded()
        if options.command:
            watch("")
            first = recorded(options.command, read.wanted, [op for op in ops if op.why_not() is None])
        work = _Work(units_of(ops, options.seed, jobs), first, watch)
        work.run(slots, interrupts)
        if work.error is not None:
            raise work.error
        document = merged(work.documents, options.seed, kept, complete=not interrupts.came and not work.left)
        gaps = tuple(dict.fromkeys((*document.gaps, *first.gaps, *work.gaps)))
        subject = Subject(kind=read.kind, path=target)  # on another machine it has another path
        document = msgspec.structs.replace(document, gaps=gaps, subject=subject)
    return document, KeyboardInterrupt() if interrupts.came else None


def units_of(ops: Sequence[OpDefinition], seed: int, jobs: int) -> list[Unit]:
    """All campaigns: each op with the seed, and with the ones after it where there are more processes than ops.

    An op that cannot be called has one, which says why.
    """
    rounds = max(1, math.ceil(jobs / max(1, sum(op.why_not() is None for op in ops))))
    return [
        Unit(op.name, seed + number) for number in range(rounds) for op in ops if not number or op.why_not() is None
    ]


class _Work:
    """The campaigns that are left, and the documents on those that were run."""

    def __init__(self, units: Sequence[Unit], first: Recorded, watch: Watch) -> None:
        self.documents: list[Document] = []
        self.gaps: list[Gap] = []
        self.error: NecropsyError | None = None
        self.left = deque(units)
        self._first, self._watch, self._total = first, watch, len(units)
        self._running = 0
        self._losses: Counter[Unit] = Counter()
        self._changed = threading.Condition()
        self._is_over = False

    def run(self, slots: Sequence[AnySlot], interrupts: Interrupts) -> None:
        """Run all; after Ctrl-C only what has begun, in order. A second Ctrl-C raises ``KeyboardInterrupt``."""
        threads = [threading.Thread(target=self._serve, args=(slot,), daemon=True) for slot in slots]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            time.sleep(_LOOK_S)
            if interrupts.came and not self._is_over:
                self._end()
                for slot in slots:
                    slot.interrupt()

    def _end(self) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _serve(self, slot: AnySlot) -> None:
        try:
            slot.ops()
            while (unit := self._next()) is not None:
                self._run(slot, unit)
        except SlotLostError as error:
            with self._changed:
                self.gaps.append(Gap(part="jobs", why=f"{error}; its campaign was run again by another one"))
        except NecropsyError as error:
            self.error = error
            self._end()

    def _next(self) -> Unit | None:
        """Another campaign; None once all are done. One that runs may be lost, and is to be run again then."""
        with self._changed:
            while not self.left and self._running and not self._is_over:
                self._changed.wait()
            if self._is_over or not self.left:
                return None
            self._running += 1
            return self.left.popleft()

    def _run(self, slot: AnySlot, unit: Unit) -> None:
        documents: list[Document] = []
        try:
            document, _ = slot.run(unit, self._first, self._tell)
            documents.append(document)
        except SlotLostError:
            with self._changed:
                self._losses[unit] += 1
                if self._losses[unit] < _MOST_LOSSES:
                    self.left.append(unit)
                else:
                    why = f"the process that ran its campaign ended unexpectedly {_MOST_LOSSES} times"
                    self.gaps.append(Gap(part=unit.op, why=why))
            raise
        finally:
            with self._changed:
                self.documents += documents
                self._running -= 1
                self._changed.notify_all()

    def _tell(self, text: str) -> None:
        with self._changed:
            self._watch(f"{len(self.documents)} of {self._total} campaigns are done; {text}")


# ---------------------------------------------------------------- one document


def merged(documents: Sequence[Document], seed: int, kept: Collection[Path], *, complete: bool) -> Document:
    """One document on all campaigns: a cause that several of them found is one finding, with one test.

    ``kept``: tests of earlier campaigns, which stay.

    Raises:
        NecropsyError: there is none.

    """
    if not documents:
        raise NecropsyError("all processes that ran campaigns ended unexpectedly")
    identity = new_id()
    findings: list[FuzzFinding] = []
    reports = []
    for document in documents:
        for finding in document.fuzz.findings if document.fuzz is not None else ():
            same = (is_same_cause(one, finding, finding.signature, finding.call.target) for one in findings)
            known = next((at for at, is_same in enumerate(same) if is_same), None)
            if known is None:
                findings.append(msgspec.structs.replace(finding, report=identity))
                reports += [one for one in document.reports if one.signature == finding.signature]
                continue
            one = findings[known]
            findings[known] = msgspec.structs.replace(one, times=one.times + finding.times)
            if finding.test is not None and finding.test != one.test and Path(finding.test).resolve() not in kept:
                with suppress(OSError):
                    Path(finding.test).unlink()
    targets = _targets([one for document in documents for one in (document.fuzz.targets if document.fuzz else ())])
    return msgspec.structs.replace(
        documents[0],
        id=identity,
        complete=complete,
        reports=tuple(reports),
        gaps=tuple(dict.fromkeys(gap for one in documents for gap in one.gaps)),
        not_tried=tuple(dict.fromkeys(rest for one in documents for rest in one.not_tried)),
        fuzz=Fuzzing(
            executions=sum(one.executions for one in targets),
            seconds=round(sum(one.fuzz.seconds for one in documents if one.fuzz is not None), 3),
            seed=seed,
            findings=tuple(findings),
            targets=targets,
        ),
    )


def _targets(given: Iterable[FuzzTarget]) -> tuple[FuzzTarget, ...]:
    """One for each op: what became of its calls in all campaigns."""
    found: dict[str, FuzzTarget] = {}
    for one in given:
        known = found.get(one.name)
        counts = [name for name in one.__struct_fields__ if name != "name"] if known is not None else []
        found[one.name] = msgspec.structs.replace(
            one, **{name: getattr(known, name) + getattr(one, name) for name in counts}
        )
    return tuple(found.values())
