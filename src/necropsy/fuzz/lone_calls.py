"""Calls that kill by themselves: in the plainest configuration in which they do, and as simple as they get."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from necropsy.fuzz.campaign import Suspect
from necropsy.fuzz.causes import Alone, Cause
from necropsy.fuzz.cheap_signature import SLOW
from necropsy.fuzz.conditions import values_of, with_value
from necropsy.fuzz.configurations import PLAIN, SANITIZED, SMALL_BLOCKS, Configuration, Threads
from necropsy.fuzz.definitions import OpDefinition
from necropsy.fuzz.engine import Ended, Engine
from necropsy.fuzz.recipes import Recipe
from necropsy.fuzz.shrinker import NUMBERS, SMALL, Shrinker, with_margin

REPEATED = 30
"""Calls in one process for a death that comes later than the damage."""
_SLOW_TRIALS = 8
"""Of a call that does not end, each of which takes its whole time: trials to make it simpler."""
_THREADS_TRIALS = 16
"""The same for a call made by several threads: each trial that survives takes its full time."""
_THREADS_S = 2.0
"""Seconds of such a trial: longer than the run that saw the death."""
_OTHERS = 4
"""Calls that died in the same way, to be tried where the first one does not die again."""
_GUARDED = Configuration(guard="end", small_blocks=SMALL_BLOCKS)
BOTH_ENDS = (_GUARDED, replace(_GUARDED, guard="begin"))
_SHORTENED_RUNS = 3
"""Runs of a call as short as another one. What is overwritten differs from process to process, and so may the death."""
_FAILS_S = 1.0
"""Seconds in which an allocation fails. Calls that get the memory take long to fill it, and are of no interest."""


class LoneCalls:
    """Makes calls in workers that have made no other."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def run(self, recipe: Recipe, repeated: int, *, fresh: bool) -> Ended:
        """Make a call ``repeated`` times in one worker, in the engine's configuration; ``fresh``: in a new worker."""
        end = self.engine.run([recipe.call] * repeated, fresh=fresh)[-1]
        is_meant = end.kind == "slow" and self.engine.configuration.limit is not None
        return replace(end, kind="died", death=SLOW) if is_meant else end

    def of(self, suspect: Suspect) -> Iterator[Alone]:
        """Calls that kill by themselves: the plainest configuration first, then others that died in the same way.

        What lies behind a buffer differs between one worker and another, and the process of the test. There is a
        forbidden page in all of them where the buffers are guarded.
        """
        own = suspect.configuration
        if own.threads is not None:
            yield from self._of_threads(suspect, own.threads)
            return
        if own.limit is not None:
            alone = self.dying([(suspect.recipe, 1)], own)
            if alone is not None:
                yield alone
            return
        before = tuple((one, REPEATED) for one in reversed(suspect.before))
        tries = ((suspect.recipe, 1), (suspect.recipe, 1), (suspect.recipe, REPEATED), *before)
        others = tuple((one, 1) for one in suspect.lethal[:_OTHERS])
        for plainer in dict.fromkeys((PLAIN, replace(own, graph=False))):
            alone = self.dying(tries[:1], plainer) if own not in {plainer, SANITIZED} else None
            if alone is not None and alone.death.signature == suspect.death.signature:
                yield alone
        alone = self.dying((*tries, *others), own)
        if alone is not None:
            if own == PLAIN and self._needs_limit(alone):
                yield replace(alone, configuration=Configuration(memory=self.engine.limits.data))
                return  # without the limit it might use all of the machine's memory
            yield alone
        if not own.sanitized and self.engine.has_guard:
            # The call may have met a block that was guarded for one before it; and the test's arrays lie elsewhere.
            once = (
                *(() if alone is None else ((alone.recipe, 1),)),
                *((recipe, 1) for recipe, _ in tries[1:]),
                *others,
            )
            for configuration in (replace(one, graph=own.graph) for one in BOTH_ENDS):
                alone = self.dying(once, configuration) if configuration != own else None
                if alone is not None:
                    yield alone

    def _of_threads(self, suspect: Suspect, threads: Threads) -> Iterator[Alone]:
        """Try a single thread first, to rule out other bugs; then one call in all threads; then several calls."""
        recipes = (suspect.recipe, *suspect.before)
        guarded = BOTH_ENDS if self.engine.has_guard else ()
        for configuration in (PLAIN, *guarded[:1]):
            alone = self.dying([(one, REPEATED) for one in recipes], configuration)
            if alone is not None:
                yield alone
                return
        same = Threads(threads.many, _THREADS_S)
        several = replace(same, beside=threads.beside)
        for made, tried in ((same, recipes), *(((several, recipes[:1]),) if threads.beside else ())):
            for place in (PLAIN, *guarded):
                all_blocks = -1 if place.guard is not None else 0
                configuration = replace(place, small_blocks=all_blocks, threads=made)
                alone = self.dying([(one, 1) for one in tried], configuration)
                if alone is not None:
                    yield alone

    def dying(self, tries: Sequence[tuple[Recipe, int]], configuration: Configuration) -> Alone | None:
        """The first of these calls that kills: the suspect's own, or one before that damaged the heap."""
        self.engine.use(configuration)
        for recipe, repeated in tries:
            end = self.run(recipe, repeated, fresh=True)
            if end.kind in {"died", "hungry"} and end.death is not None:
                return Alone(recipe, repeated, end.death, configuration)
        return None

    def dies_shortened(self, whole: Cause, other: Cause) -> bool:
        """Whether the call of ``whole``, with an input or text as short as in the other one, dies as that one does."""
        alone, theirs = other.alone, values_of(other.alone.recipe)
        for term, many in values_of(whole.alone.recipe).items():
            fewer = theirs.get(term)
            if term.part not in {"size", "dim", "length"} or not isinstance(fewer, int) or not 0 < fewer < (many or 0):
                continue
            recipe = with_value(whole.alone.recipe, term, fewer)
            if recipe is None:
                continue
            for _ in range(_SHORTENED_RUNS):
                died = self.dying([(recipe, alone.repeated)], alone.configuration)
                if died is not None and died.death.signature in other.signatures:
                    return True
        return False

    def _needs_limit(self, alone: Alone) -> bool:
        """Whether it dies because an allocation fails: workers may have less memory than the process of a test."""
        data = self.engine.limits.data
        if data is None:
            return False
        self.engine.use(PLAIN)
        self.engine.limit_data(None)
        try:
            survives = all(self.run(alone.recipe, alone.repeated, fresh=True).death is None for _ in range(2))
        finally:
            self.engine.limit_data(data)
        return survives and all(self.run(alone.recipe, alone.repeated, fresh=True).death is not None for _ in range(2))

    def shrunk(self, op: OpDefinition, alone: Alone, most_runs: int) -> list[Recipe]:
        """The call, and ever simpler ones that die the same death, or any where it dies by chance."""
        configuration = alone.configuration
        is_late = alone.repeated > 1 or alone.death.of_the_heap or configuration.threads is not None
        by_chance = is_late and configuration.guard is None
        if configuration.limit is not None:
            most_runs = min(most_runs, _SLOW_TRIALS)
        if configuration.threads is not None:
            most_runs = min(most_runs, _THREADS_TRIALS)

        def dies(recipe: Recipe) -> bool:
            end = self.run(recipe, alone.repeated, fresh=by_chance)
            if end.death is None:
                return False
            return is_late or end.death.signature == alone.death.signature

        wild = alone.death.signal in {"SIGSEGV", "SIGBUS"} and not alone.death.of_the_stack
        shrinker = Shrinker(op, dies, most_runs, SMALL if wild else NUMBERS)
        seconds = self.engine.limits.seconds
        if configuration.memory is not None:
            self.engine.limit_seconds(_FAILS_S)
        simplest = shrinker.shrink(alone.recipe)
        self.engine.limit_seconds(seconds)
        if alone.death.of_the_stack:
            larger = with_margin(simplest)
            if dies(larger):
                simplest = larger
        return [alone.recipe, *shrinker.lethal, simplest]
