"""A pointer that went through a 32-bit integer: the address has only the lower half of one that is mapped."""

from __future__ import annotations

from dataclasses import dataclass

from necropsy.model import Address, Crash, Evidence, Fix, Mapping
from necropsy.predicates import place_of
from necropsy.rule import Found

HALVED = "A pointer lost its upper half"
_HALF = 32
_LOWER = (1 << _HALF) - 1


@dataclass(frozen=True)
class Half:
    """``address`` is what was used, ``whole`` what it was before it was cut, ``mapping`` where that lies."""

    address: Address
    whole: Address
    mapping: Mapping


def half_pointer(crash: Crash) -> Half | None:
    """The whole pointer of which the fault address is a half; None where nothing with that half was mapped."""
    fault = crash.fault
    if fault is None or fault.address is None or fault.truncated_from is None:
        return None
    mapping = fault.truncated_from
    whole = (mapping.low >> _HALF << _HALF) | (fault.address & _LOWER)
    whole += 1 << _HALF if whole < mapping.low else 0
    return Half(fault.address, Address(whole), mapping) if whole < mapping.high else None


def evidence_of(crash: Crash, half: Half | None) -> Found:
    """What is mapped at the whole address."""
    if half is None:
        return ()
    path = f" {half.mapping.path}" if half.mapping.path else ""
    return (
        Evidence(
            claim="a mapped address has the same lower 32 bits",
            seen=f"{half.whole} in {half.mapping.low}-{half.mapping.high} {half.mapping.permissions}{path}; used: {half.address}",
            where=f"{place_of(crash)}, memory map of the process",
        ),
    )


def in_words(half: Half) -> str:
    """The end of a sentence that says what was read, written or called."""
    where = f" ({half.mapping.path})" if half.mapping.path else ""
    return f"{half.address}, the lower 32 bits of {half.whole}, which is mapped{where}: a pointer went through a 32-bit integer"


def fix(crash: Crash) -> Fix:
    """How the pointer keeps its upper half."""
    if _calls_ctypes(crash):
        return Fix(
            text="Declare the function before the call: ctypes passes and returns C ints unless argtypes and restype say c_void_p or a pointer type.",
            command="lib.make.restype = ctypes.c_void_p; lib.use.argtypes = [ctypes.c_void_p]",
        )
    return Fix(
        text="Look for a pointer that is cast to int or stored in one, and for a C function that is called without its declaration.",
        command="gcc -Werror=implicit-function-declaration -Werror=int-conversion -Wpointer-to-int-cast ...",
    )


def _calls_ctypes(crash: Crash) -> bool:
    thread = crash.crashed_thread
    frames = (*(thread.frames or ()), *(thread.python or ())) if thread is not None else ()
    return any("ctypes" in (one.module or "") or "ctypes" in (one.source or "") for one in frames)
