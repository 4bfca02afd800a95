"""A read or a write through a pointer that leads nowhere: what the rules on both conclude alike."""

from __future__ import annotations

from necropsy.model import Crash, Fix
from necropsy.predicates import died_by
from necropsy.rule import Finding, Occurs
from necropsy.rules.culprit import culprit_of, python_line
from necropsy.rules.halves import HALVED, half_pointer
from necropsy.rules.pointers import (
    HEAP_OF_WINDOWS,
    BadAccess,
    causes_of_small_number,
    doer,
    evidence,
    first_look,
    how_sure,
    small_number,
    within_ntdll,
)
from necropsy.rules.windows_loader import sanitizer_of
from necropsy.rules.wording import sentence

OCCURS = Occurs(but="Tags of memory (SEGV_MTESERR, SEGV_MTEAERR) are AArch64's alone.")


def invalid_access(crash: Crash, access: BadAccess, did: str, *, look: str, sanitizer: str) -> Finding:
    """``did``: what the function did, with the address; ``look``: what to do there; ``sanitizer``: what that shows."""
    by = doer(crash, culprit_of(crash))
    return Finding(
        evidence=died_by(crash, "SIGSEGV", "SIGBUS") + evidence(crash, access) + python_line(crash),
        summary=f"{sentence(by.name)} {did}{by.besides}.",
        confidence=how_sure(crash, access),
        culprit=by.culprit,
        fixes=(
            first_look(crash, by, small_number(crash, access), look),
            Fix(
                text=f"AddressSanitizer {sanitizer}: rebuild the native code with it and run once.",
                command=sanitizer_of(crash),
            ),
        ),
        title=HALVED if half_pointer(crash) is not None else None,
        possible=causes_of_small_number(crash, access) or ((HEAP_OF_WINDOWS,) if within_ntdll(crash) else ()),
    )
