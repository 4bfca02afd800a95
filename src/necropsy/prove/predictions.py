"""What each rule predicts: which calls should bring the defect to light, and as which deaths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from necropsy.prove import variations
from necropsy.prove.outcomes import CallDeath
from necropsy.prove.session import OpDescription
from necropsy.prove.values import Call

ABORTS = frozenset({"SIGABRT", "ABRT"})
OVERFLOWS = frozenset({"stack-overflow"})
SEGFAULTS = frozenset({"SIGSEGV", "SIGBUS", "SEGV", "BUS"})
DIVISIONS = frozenset({"SIGFPE", "FPE"})
LIMITS = frozenset({"time", "memory"})
_ADDRESSES = frozenset(
    {
        "heap-buffer-overflow",
        "stack-buffer-overflow",
        "global-buffer-overflow",
        "dynamic-stack-buffer-overflow",
        "container-overflow",
        "heap-use-after-free",
        "stack-use-after-return",
        "stack-use-after-scope",
        "use-after-poison",
        "negative-size-param",
        "memcpy-param-overlap",
        "unknown-crash",
        "undefined",
        "bad-free",
        "double-free",
        "wild-access",
    }
)
MEMORY = _ADDRESSES | SEGFAULTS
ALLOCATIONS = frozenset({"allocation-size-too-big", "out-of-memory", "calloc-overflow", "bad-malloc"})


@dataclass(frozen=True)
class Prediction:
    """``calls``: which variations are made; ``deaths``: how one of them should end."""

    calls: tuple[str, ...]
    deaths: frozenset[str]
    plain: bool = False
    """Build without AddressSanitizer, whose frames are larger than those the finding is about."""
    complete: bool = False
    """The calls cover every case of the rule: if none dies, the finding is refuted."""

    def fits(self, death: CallDeath) -> bool:
        """Whether this is how it should end; without AddressSanitizer's runtime, a full stack is a SIGSEGV."""
        return death.kind in self.deaths or (self.deaths == OVERFLOWS and death.kind == "SIGSEGV" and not death.frames)


_STACK = Prediction(("deep", "numbers"), OVERFLOWS, plain=True)
_BOUNDS = Prediction(("shapes", "numbers", "attributes"), MEMORY | ABORTS)
PREDICTIONS: dict[str, Prediction] = {
    "op-recursion": _STACK,
    "op-recursive-destructor": _STACK,
    "op-stack-allocation": _STACK,
    "op-large-frame": Prediction(("numbers", "shapes", "deep"), OVERFLOWS, plain=True),
    "op-stack-depth": Prediction(("numbers", "shapes", "deep"), OVERFLOWS, plain=True),
    "op-buffer-overrun": _BOUNDS,
    "op-index-unchecked": _BOUNDS,
    "op-element-unchecked": Prediction(("shapes",), MEMORY | ABORTS, complete=True),
    "op-sizes-unrelated": Prediction(("shapes",), MEMORY | ABORTS, complete=True),
    "op-attr-unchecked": Prediction(("attributes", "shapes"), MEMORY | ABORTS | DIVISIONS | ALLOCATIONS),
    "op-offset-unchecked": _BOUNDS,
    "op-string-overflow": Prediction(("numbers", "attributes"), MEMORY | ABORTS),
    "op-rank-unchecked": Prediction(("shapes",), ABORTS | MEMORY, complete=True),
    "op-type-unchecked": Prediction(("types",), ABORTS, complete=True),
    "op-check-on-input": Prediction(("shapes", "numbers", "attributes"), ABORTS),
    "op-exception": Prediction(("shapes", "numbers", "attributes"), ABORTS),
    "op-division-unchecked": Prediction(("numbers", "shapes", "attributes"), DIVISIONS | ABORTS),
    "op-null-input": Prediction(("shapes", "numbers", "attributes"), MEMORY | ABORTS),
    "op-size-overflow": Prediction(("numbers", "shapes", "attributes"), MEMORY | ABORTS | ALLOCATIONS),
    "op-allocation-unchecked": Prediction(("numbers", "attributes", "shapes"), ABORTS | ALLOCATIONS | MEMORY),
    "op-dangling-view": _BOUNDS,
    "op-status-ignored": Prediction(("shapes", "numbers", "attributes"), MEMORY | ABORTS),
    "op-output-unset": _BOUNDS,
    "op-requires-in-lambda": _BOUNDS,
    "op-done-not-called": Prediction(("shapes", "numbers", "attributes"), LIMITS | ABORTS | MEMORY),
    "op-unbounded-loop": Prediction(("numbers", "shapes", "attributes"), LIMITS),
}
"""Without rules on threads, which one call cannot show."""


def calls(kind: str, base: Call, op: OpDescription) -> Iterator[Call]:
    """The variations of this kind of an accepted call."""
    if kind == "attributes":
        yield from variations.attributes(base, op)
    elif kind == "types":
        yield from variations.types(base, op)
    else:
        yield from {"shapes": variations.shapes, "numbers": variations.numbers, "deep": variations.deep}[kind](base)
