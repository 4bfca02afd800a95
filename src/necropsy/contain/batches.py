"""Batches of records: one message for many calls, and which record it was when the worker dies."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from necropsy.contain.pool import Call, Pool, explained
from necropsy.crashed import Crashed


@dataclass(frozen=True)
class Quarantined:
    """A record that has no result: its place among all records, the record, and its ``Crashed`` or other exception."""

    index: int
    record: Any
    error: BaseException


class Batch:
    """Records that one worker is sent together; ``run`` fills ``results`` and, by place, ``errors``."""

    def __init__(
        self,
        function: Callable[[Any], Any],
        records: Sequence[Any],
        start: int,
        *,
        timeout: float | None,
        memory: int | None,
    ) -> None:
        self.function, self.records, self.start = function, records, start
        self.timeout, self.memory = timeout, memory
        self.results: list[Any] = [None] * len(records)
        self.errors: dict[int, BaseException] = {}
        self.seconds = 0.0
        self.cancelled = False
        """Nobody wants the results any more."""

    def run(self, pool: Pool) -> Batch:
        """Work at all records, whatever some of them do.

        Raises TypeError where the function or a record cannot be pickled.
        """
        began = time.monotonic()
        self._work(pool, 0, len(self.records))
        self.seconds = time.monotonic() - began
        return self

    def _work(self, pool: Pool, begin: int, end: int) -> None:
        parts = [(begin, end)]
        while parts:
            begin, end = parts.pop()
            if begin >= end:
                continue
            call = self._call(self.records[begin:end])
            try:
                results, errors = call.run(pool)
            except Crashed as crashed:
                if self.cancelled or pool.closed:
                    raise
                place = begin + min(call.progress, end - begin - 1)
                guilty = self._blame(pool, begin, place, crashed)
                parts += [(place + 1, end), (guilty + 1, place), (begin, guilty)]
            else:
                self.results[begin:end] = results
                self.errors |= {begin + place: explained(*error) for place, error in errors.items()}

    def _call(self, records: Sequence[Any]) -> Call:
        return Call(self.function, (list(records),), {}, timeout=self.timeout, memory=self.memory, mode="batch")

    def _blame(self, pool: Pool, begin: int, place: int, first: Crashed) -> int:
        """Find the record whose crash came at ``place``; its place, or ``place`` where the crash is not repeatable."""
        if self._alone(pool, place):
            return place
        # [guilty, place] crashes, and [innocent, place] does not.
        guilty, innocent = begin, place
        crashed = self._with_those_before(pool, begin, place) if begin < place else None
        if crashed is None:
            _warn(f"a crash at record {self.start + place} did not happen again when the record was run alone: {first}")
            return place
        while innocent - guilty > 1:
            middle = (guilty + innocent) // 2
            found = self._with_those_before(pool, middle, place)
            guilty, innocent, crashed = (middle, innocent, found) if found is not None else (guilty, middle, crashed)
        self.errors[guilty] = crashed
        _warn(f"record {self.start + guilty} makes record {self.start + place} crash, which alone does not: {crashed}")
        return guilty

    def _alone(self, pool: Pool, place: int) -> bool:
        """Whether the record crashes alone, in a new process; its result is kept, or its error."""
        try:
            results, errors = self._call(self.records[place : place + 1]).run(pool, fresh=True)
        except Crashed as crashed:
            self.errors[place] = crashed
            return True
        self.results[place] = results[0]
        if errors:
            self.errors[place] = explained(*errors[0])
        return False

    def _with_those_before(self, pool: Pool, begin: int, place: int) -> Crashed | None:
        """The crash at ``place`` in a new process that works at all records from ``begin`` on."""
        call = self._call(self.records[begin : place + 1])
        try:
            call.run(pool, fresh=True)
        except Crashed as crashed:
            if self.cancelled or pool.closed:
                raise
            return crashed if call.progress == place - begin else None
        return None


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=2)
