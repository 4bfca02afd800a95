"""Is it the same crash or another one?

A signature is ``rule|function|hash``: readable at the front, exact at the end. It is made of what stays the same from
run to run: the rule, the signal, and the names of the innermost frames with recursion folded to one period. Addresses,
thread ids and depths stay out.
"""

from __future__ import annotations

import hashlib

from necropsy.model import Crash, Diagnosis, Thread

FRAMES = 8
"""How many names of the crashed thread count; deeper ones differ between versions of the caller."""


def signature(crash: Crash, verdict: Diagnosis | None) -> str:
    """The crash's signature. Two crashes with the same one have the same cause at the same place."""
    thread = crash.crashed_thread
    names = _names(thread) if thread else ()
    end = crash.fault.signal if crash.fault else _end(crash)
    culprit = verdict.culprit if verdict else None
    rule = verdict.rule if verdict else "unknown"
    place = (culprit.function if culprit else None) or (names[0] if names else "?")
    digest = hashlib.sha256("\n".join((rule, end, *names)).encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{rule}|{place.split('(')[0]}|{digest}"


def _end(crash: Crash) -> str:
    return f"{crash.exit.kind} {crash.exit.signal or crash.exit.code}" if crash.exit else "unknown"


def _names(thread: Thread) -> tuple[str, ...]:
    """Innermost names, each fold's frames reduced to the set of its functions, which has no beginning."""
    if thread.folds:
        # Where exactly a recursion dies (in malloc, in the recursive call) is chance; what repeats is not.
        return tuple(sorted(set(thread.folds[0].functions)))
    names: list[str] = []
    for frame in thread.frames or ():
        names.append(frame.function or (frame.module or "?"))
        if len(names) == FRAMES:
            break
    return tuple(names)
