"""What the report on a death says about memory that was overwritten: one overrun kills in many ways.

What lies behind a local or static array decides who dies of its overrun: the function itself at its return, a caller
that finds its own variables changed, or code that runs when the op has returned long since. These deaths have neither
a rule nor a function in common.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from necropsy.fuzz.function_names import without_types
from necropsy.model import Diagnosis, Frame, Report, Thread

DAMAGE = frozenset({"heap-corruption", "heap-buffer-overflow", "double-free", "use-after-free", "invalid-write"})
ACCESS = frozenset({"heap-buffer-overflow", "use-after-free", "invalid-read", "invalid-write", "write-to-readonly"})
_OTHER_DEATHS = frozenset({"bad-jump", "stack-smash", "null-dereference", "damaged-object", "misaligned-access"})
_OTHER_DEATHS |= {"bus-error", "illegal-instruction", "pure-virtual-call", "sanitizer-report"}
OF_MEMORY = DAMAGE | ACCESS | _OTHER_DEATHS
"""Rules of deaths that memory with wrong contents can cause, or whose cause can fill it with wrong contents."""
_OF_THE_HEAP = DAMAGE - {"heap-corruption", "double-free"}
"""Damage at the place where it is done. The C library notices some of it when a block is freed."""
_OTHERS = frozenset({"framework", "interpreter", "system"})
_GUESSED = frozenset({"frame-pointer", "scan"})
_REACH = 1 << 16
"""Bytes beyond the end of a stack in which a write has run off it."""


@dataclass(frozen=True)
class Remains:
    """Of one death: ``rule``; and the functions of the user's own code that were running, without their types."""

    rule: str
    running: frozenset[str]
    returning: str | None = None
    """The one of these that found its own return address overwritten, or what guards it."""
    left_stack: str | None = None
    """The innermost one, if it wrote beyond the end of the stack: an overrun of a local array, at full length."""

    @property
    def is_aftermath(self) -> bool:
        """No code of the user's own was running: the damage was done before."""
        return not self.running


def remains_of(report: Report, verdict: Diagnosis) -> Remains:
    """What can be seen in the report on a death."""
    thread = next((one for one in report.crash.threads or () if one.crashed), None)
    own = [without_types(one.function) for one in _certain(thread) if one.owner not in _OTHERS and one.function]
    innermost = own[0] if own else None
    instruction = report.crash.instruction
    is_return = instruction is not None and (instruction.mnemonic or "").startswith("ret")
    is_smashed = verdict.rule == "stack-smash" or (verdict.rule == "bad-jump" and is_return)
    return Remains(
        verdict.rule,
        frozenset(own),
        innermost if is_smashed else None,
        innermost if verdict.rule == "invalid-write" and _has_left_stack(report, thread) else None,
    )


def _certain(thread: Thread | None) -> list[Frame]:
    """The native frames, up to the first one that is a guess."""
    frames = (one for one in (thread.frames if thread is not None else None) or () if one.kind == "native")
    return list(itertools.takewhile(lambda one: one.found_by not in _GUESSED, frames))


def _has_left_stack(report: Report, thread: Thread | None) -> bool:
    end = thread.stack.high if thread is not None and thread.stack is not None else None
    operands = report.crash.instruction.operands if report.crash.instruction is not None else ()
    written = (one for one in operands if one.access != "read" and one.address is not None)
    return end is not None and any(
        one.address + (one.size or 1) > end and one.address < end + _REACH for one in written if one.address is not None
    )


def was_noticed_later(death: Remains) -> bool:
    """Whether the C library only noticed that the heap is damaged, which tells nothing of where that was done."""
    return death.rule == "heap-corruption" or (death.rule == "double-free" and death.is_aftermath)


def may_be_of_one_damage(one: Remains, other: Remains) -> bool:
    """Whether both deaths can be of the same overwritten memory, if each call that dies so also does the damage.

    If both died in the user's own code, they count as two bugs, unless one function was running in both and found its
    return address overwritten in one of them.
    """
    if not {one.rule, other.rule} <= OF_MEMORY:
        return False
    if one.is_aftermath or other.is_aftermath:
        return True
    return one.returning in other.running or other.returning in one.running


def may_be_shorter(death: Remains, whole: Remains) -> bool:
    """Whether ``death`` can be of the overrun that ran off the stack in ``whole``, where it ended among the callers."""
    return whole.left_stack is not None and death.is_aftermath and death.rule in OF_MEMORY


def are_of_one_damage(one: Remains, other: Remains) -> bool:
    """Whether both deaths are of the same damage, whatever the calls are.

    They are of a local array of the same function, or of the heap, where the C library noticed one of them.
    """
    for noticed, done in ((one, other), (other, one)):
        if was_noticed_later(noticed) and done.rule in _OF_THE_HEAP:
            return True
    ends = {one.returning, other.returning} - {None}
    return bool(ends) and ends == {one.left_stack, other.left_stack} - {None}
