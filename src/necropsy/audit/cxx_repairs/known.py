"""Which rule's defects are repaired how."""

from __future__ import annotations

import os
from collections.abc import Callable

from necropsy.audit.cxx.looking import Look
from necropsy.audit.cxx_repairs import (
    aborts,
    destructors,
    guards,
    local_memory,
    locks,
    loops,
    numbers,
    recursion,
    results,
    strings,
)
from necropsy.audit.cxx_repairs.edits import Repair
from necropsy.audit.cxx_repairs.site import NoRepairError, Site, site_of
from necropsy.model import CodeDefect

Made = Callable[[Site, CodeDefect], Repair]
_IN_CODE: dict[str, tuple[Made, ...]] = {
    "op-large-frame": (local_memory.large_frame,),
    "op-stack-allocation": (local_memory.stack_allocation,),
    "op-stack-depth": (local_memory.deep_path,),
    "op-string-overflow": (strings.overflow,),
    "op-status-ignored": (results.ignored,),
    "op-check-on-input": (aborts.check,),
    "op-exception": (aborts.exception,),
    "op-type-unchecked": (aborts.wrong_type,),
    "op-requires-in-lambda": (aborts.in_lambda,),
    "op-done-not-called": (aborts.done_not_called,),
    "op-recursion": (recursion.recursion,),
    "op-rank-unchecked": (guards.rank,),
    "op-element-unchecked": (guards.access,),
    "op-index-unchecked": (guards.access,),
    "op-offset-unchecked": (guards.access,),
    "op-sizes-unrelated": (guards.access,),
    "op-attr-unchecked": (numbers.divisor, numbers.size, guards.access),
    "op-buffer-overrun": (loops.overrun, guards.access),
    "op-division-unchecked": (numbers.divisor,),
    "op-allocation-unchecked": (numbers.size,),
    "op-size-overflow": (numbers.overflow,),
    "op-output-unset": (results.unset,),
    "op-null-input": (guards.null,),
    "op-dangling-view": (strings.view,),
    "op-shared-write": (locks.shared_write,),
    "op-kernel-state": (locks.kernel_state,),
}


REPAIRED = frozenset({*_IN_CODE, "op-recursive-destructor"})
"""The rules some of whose defects can be repaired."""


def candidates(look: Look, defect: CodeDefect) -> list[Repair]:
    """What could be done about a defect, the best first; empty where nothing is safe."""
    if defect.is_in_macro and defect.rule != "op-rank-unchecked":
        return []
    if defect.rule == "op-recursive-destructor":
        found = _tried(lambda: destructors.recursive(look, defect))
        return [found] if found is not None else []
    made = _IN_CODE.get(defect.rule, ())
    site = site_of(look, defect) if made else None
    if site is None:
        return []
    several = [_tried(lambda each=each: each(site, defect)) for each in made]  # type: ignore[misc]
    return [one for one in several if one is not None and one.edits]


def _tried(make: Callable[[], Repair]) -> Repair | None:
    try:
        return make()
    except NoRepairError:
        return None
    except Exception:
        if "NECROPSY_DEBUG" in os.environ:
            raise
        return None  # an internal error costs only this repair
