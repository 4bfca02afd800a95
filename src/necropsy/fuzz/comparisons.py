"""Compares the results of the same call, made several times with other bytes in new memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import msgspec

from necropsy.fuzz.configurations import PLAIN, SMALL_BLOCKS, Configuration
from necropsy.fuzz.definitions import OpDefinition
from necropsy.fuzz.described_calls import shown
from necropsy.fuzz.engine import Ended, Engine
from necropsy.fuzz.recipes import FLOATS, Recipe
from necropsy.fuzz.target.comparing import ROUNDS
from necropsy.model import CallComparison

MOST = 60
"""Calls of an op that are compared."""
_BATCH = 20
_SECONDS = 2.0
"""What a comparison may take; a call that takes longer is not compared."""
_LARGEST = 100_000
"""Elements of a call that is compared."""
_WHOLE = 1000
"""The largest whole number that the inputs of a call may have for its results to be compared with each other."""
_GUARDED = Configuration(guard="end", small_blocks=SMALL_BLOCKS)


class Comparisons:
    """Comparisons of the calls of one op."""

    def __init__(self, engine: Engine, op: OpDefinition) -> None:
        self._engine, self._op = engine, op
        self._configuration = _GUARDED if engine.has_guard else PLAIN

    def of(self, accepted: Sequence[Recipe]) -> Iterator[tuple[Recipe, CallComparison]]:
        """Compare calls that were accepted, the first and the last ones; those that die or take long are left out."""
        fitting = [one for one in accepted if one.elements <= _LARGEST]
        chosen = fitting if len(fitting) <= MOST else [*fitting[: MOST // 2], *fitting[-MOST // 2 :]]
        at = 0
        while at < len(chosen) and not self._engine.is_stopped():
            batch = chosen[at : at + _BATCH]
            ended = self._run(batch, fresh=False)
            for recipe, end in zip(batch, ended, strict=False):
                found = self._read(recipe, end)
                if found is not None:
                    yield recipe, found
            at += max(1, len(ended))

    def again(self, recipe: Recipe, *, fresh: bool = True) -> CallComparison | None:
        """Compare one call; None where that was not possible."""
        return self._read(recipe, self._run([recipe], fresh=fresh)[-1])

    def with_threads(self, recipe: Recipe, comparison: CallComparison, times: int) -> CallComparison:
        """The comparison, with whether one thread cures results that differ: in each of ``times`` comparisons."""
        if not comparison.varies or self._op.is_python:
            return comparison
        self._engine.use_one_thread(wanted=True)
        try:
            alone = [self.again(recipe) for _ in range(times)]
        finally:
            self._engine.use_one_thread(wanted=False)
        cured = all(one is not None and not one.varies for one in alone)
        return msgspec.structs.replace(comparison, cured_by_one_thread=cured)

    def _run(self, recipes: Sequence[Recipe], *, fresh: bool) -> list[Ended]:
        seconds = self._engine.limits.seconds
        self._engine.use(self._configuration)
        self._engine.limit_seconds(_SECONDS)
        try:
            return self._engine.run([one.call for one in recipes], fresh=fresh, compare=True)
        finally:
            self._engine.limit_seconds(seconds)

    def _read(self, recipe: Recipe, end: Ended) -> CallComparison | None:
        if end.kind != "accepted" or end.message is None:
            return None
        found = json.loads(self._engine.texts[end.message])
        return CallComparison(
            target=self._op.name,
            call=shown(self._op.name, recipe)[:2000],
            runs=ROUNDS,
            varies=found["varies"] and _is_exact(recipe),
            by_fill=found["by_fill"],
            modified=tuple(found["modified"]),
            results=tuple(found["shown"]),
            shapes=tuple(found["shapes"]),
            gradient=tuple(found["gradient"]),
            is_stateful=self._op.is_stateful,
            is_python=self._op.is_python,
        )


def _is_exact(recipe: Recipe) -> bool:
    """The order in which its floats are added makes no difference."""
    floats = [one for one in recipe.tensors() if one.dtype in FLOATS or one.dtype.startswith("complex")]
    return all(one.kind != "random" and all(map(_is_whole, one.items)) for one in floats)


def _is_whole(item: object) -> bool:
    return isinstance(item, int | float) and abs(item) <= _WHOLE and item == int(item)
