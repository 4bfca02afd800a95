"""What only AArch64 refuses: pointers whose signature or tag is wrong, branches to no landing pad; and what its traps say.

Arm Architecture Reference Manual for A-profile: D8.9 (pointer authentication), D8.4.7 (branch target identification),
D10 (memory tagging).
"""

from __future__ import annotations

import re

from necropsy.model import Crash, Evidence
from necropsy.predicates import on_aarch64, on_windows, place_of
from necropsy.rule import NOTHING, Found, Rule

_KEYS = {0x20: "A", 0x40: "B"}
"""Bits 48 to 63 of an address whose authentication failed, if the processor does not fault at once: by its key."""
_AUTHENTICATES = re.compile(r"aut\w+|reta[ab]\w*|e?bl?ra[ab]z?|ldra[ab]|eretaa|eretab")
_TAG_CHECKS = frozenset({"SEGV_MTESERR", "SEGV_MTEAERR"})
_BRANCH_TYPE = 3 << 10
"""In PSTATE: an indirect branch led to the instruction, which is no landing pad."""
_TRAPS = {
    0x1: "`__builtin_trap()` of clang, or a failed check of a hardened library",
    0x3E8: "`__builtin_trap()` or a check of `-fsanitize-trap`, of gcc",
    0xF000: "a breakpoint in the program (`__builtin_debugtrap()`)",
    **{0xC470 + place: "a pointer whose signature does not fit" for place in range(4)},
}
"""By the number in ``brk``: what compilers put there."""
_UNDEFINED = (
    *("an addition overflowed", "`__builtin_unreachable()` was reached", "a call or cast broke control flow integrity"),
    *("a division by zero, or one that overflowed", "an object is used as a type that it lacks"),
    *("a floating-point number does not fit into the type", "a function was called through a pointer of another type"),
    *("an implicit conversion changed the value", "a compiler builtin got a value that it does not allow"),
    *("an Objective-C cast failed", "a `bool` or enum holds a value that its type does not have"),
    *("a function that returns a value ended without `return`", "a multiplication overflowed", "a negation overflowed"),
    *("an argument that may not be null was null", "a result that may not be null was null"),
    *("an argument that may not be null was null", "a result that may not be null was null"),
    *(
        "an index is out of bounds",
        "a pointer overflowed",
        "a shift is too far or negative",
        "a subtraction overflowed",
    ),
    *("a null, misaligned or too small object was used", "an alignment that was promised does not hold"),
    "a variable-length array has no positive size",
)
"""By the number of the check in ``brk #0x55NN``: the order of ``SanitizerHandler`` in clang's CodeGenFunction.h."""


def can_occur(rule: Rule[Crash], crash: Crash) -> bool:
    """False for what is another processor's alone: it is not applicable, which is not the same as not observed."""
    if not on_aarch64(crash):
        return True
    platform = ((crash.environment.platform if crash.environment is not None else None) or "").lower()
    system = "win32" if on_windows(crash) else "darwin" if platform.startswith(("mac", "darwin")) else "linux"
    return rule.occurs.on(system, "AArch64")


def trap_means(crash: Crash) -> str | None:
    """What the compiler meant by the trap instruction at the fault; None where its number says nothing."""
    instruction = crash.instruction
    match = re.fullmatch(r"brk #(0x[0-9a-f]+|\d+)", (instruction.text if instruction else None) or "")
    if match is None:
        return None
    number = int(match[1], 0)
    if number >> 8 == 0x55 and number & 0xFF < len(_UNDEFINED):
        return f"a check of `-fsanitize=undefined`: {_UNDEFINED[number & 0xFF]}"
    return _TRAPS.get(number)


def refused_signature(crash: Crash, address: int | None) -> Found:
    """The address is one whose authentication failed, or the instruction that authenticates refused it."""
    if not on_aarch64(crash):
        return NOTHING
    instruction, fault = crash.instruction, crash.fault
    if fault is not None and fault.signal == "SIGILL" and instruction is not None:
        if _AUTHENTICATES.fullmatch(instruction.mnemonic or "") is None:
            return NOTHING
        return (
            Evidence(
                claim="the processor checked the signature of the pointer (pointer authentication), and it was wrong",
                seen=f"{fault.signal} at `{instruction.text}`",
                where=place_of(crash),
            ),
        )
    key = _KEYS.get((address or 0) >> 48)
    if address is None or key is None:
        return NOTHING
    return (
        Evidence(
            claim=f"the signature of the pointer was checked with key {key} (pointer authentication), and it was wrong",
            seen=f"{address:#x}: bits 53 and 54 tell it; the pointer itself is {address & (1 << 48) - 1:#x}",
            where=place_of(crash),
        ),
    )


def refused_tag(crash: Crash) -> Found:
    """The tag in the pointer was not that of the memory (memory tagging)."""
    fault = crash.fault
    if fault is None or fault.code not in _TAG_CHECKS:
        return NOTHING
    seen = f"{fault.signal}, {fault.code}"
    operands = crash.instruction.operands if crash.instruction is not None and fault.code == "SEGV_MTESERR" else ()
    pointer = next((value for one in operands for value in one.registers.values()), None)
    if pointer is not None:
        seen += f"; the tag in the pointer is {pointer >> 56 & 0xF}"
    claim = "the tag in the pointer is not that of the memory (memory tagging)"
    return (Evidence(claim=claim, seen=seen, where=place_of(crash)),)


def no_landing_pad(crash: Crash) -> Found:
    """An indirect branch led to an instruction that is none of those that a guarded page lets it lead to."""
    fault, state = crash.fault, (crash.registers or {}).get("pstate")
    if fault is None or fault.signal != "SIGILL" or fault.code != "ILL_ILLOPC" or state is None:
        return NOTHING
    if not on_aarch64(crash) or not state & _BRANCH_TYPE or fault.address is None:
        return NOTHING
    return (
        Evidence(
            claim="an indirect branch led to an instruction that is not a landing pad (branch target identification)",
            seen=f"{fault.code} at {fault.address}, branch type {(state & _BRANCH_TYPE) >> 10} in PSTATE",
            where=place_of(crash),
        ),
    )
