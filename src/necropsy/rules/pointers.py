"""What the rules on bad addresses share: which access faulted, on what address, and what lies there."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

from necropsy.frame_filter import file_name, is_interpreter, noise, noise_of_module, outside_of_python
from necropsy.model import Access, Address, Confidence, Crash, Culprit, Evidence, Fix, Frame, MemoryOperand, Possibility
from necropsy.predicates import (
    NEAR_NULL,
    access_of,
    bare_name,
    faulting_operand,
    frames_of,
    instruction_at_fault,
    is_canonical,
    jumped_to,
    left_for_nowhere,
    on_windows,
    place_of,
    real_fault,
    stack_exhausted,
)
from necropsy.rule import Found
from necropsy.rules.aarch64 import refused_signature, refused_tag
from necropsy.rules.culprit import handed_to
from necropsy.rules.given_numbers import NO_ADDRESS, given_number
from necropsy.rules.halves import evidence_of, fix, half_pointer, in_words
from necropsy.rules.jit import generated_code, is_of_nobody
from necropsy.rules.operands import Pointer, chunk_of_malloc, pointer_in
from necropsy.rules.wording import NEAREST, short, who

_COLLECTS = {
    "visit_decref",
    "visit_reachable",
    "visit_move",
    "gc_collect_main",
    "deduce_unreachable",
    "subtract_refs",
    "update_refs",
    "collect",
    "untrack_tuples",
    "move_unreachable",
    "gc_collect_region",
}
"""Functions of CPython's garbage collector (Modules/gcmodule.c, Python/gc.c): they visit every object."""


@dataclass(frozen=True)
class BadAccess:
    """A faulting access to data. ``address`` is what the program asked for, ``given`` whether the kernel said it."""

    kind: Access | None
    address: Address | None
    given: bool
    operand: MemoryOperand | None


def bad_access(crash: Crash) -> BadAccess | None:
    """The access that the processor refused; None for a jump, a full stack, or a signal that was sent."""
    fault = crash.fault
    if fault is None or fault.signal not in {"SIGSEGV", "SIGBUS"} or not real_fault(crash):
        return None
    if stack_exhausted(crash) or jumped_to(crash) is not None or left_for_nowhere(crash):
        return None
    operand = faulting_operand(crash)
    given = fault.address is not None and fault.code != "SI_KERNEL"
    address = fault.address if given else (operand.address if operand else None)
    known = crash.instruction is not None and crash.instruction.text is not None
    if not given and known and (address is None or is_canonical(address, crash)):
        # The processor refused something else than an address: a privileged instruction, an alignment.
        return None
    return BadAccess(access_of(crash), address, given, operand)


def pointer_of(access: BadAccess) -> Pointer | None:
    """The register that held the pointer when the address was made from it."""
    return pointer_in(access.operand, access.address) if access.operand is not None else None


def near_null(access: BadAccess) -> bool:
    """The address lies where nothing is ever mapped, whatever it was made from."""
    return access.given and access.address is not None and access.address < NEAR_NULL


def is_null(crash: Crash, access: BadAccess) -> bool:
    """Whether a null pointer was used, with or without an offset or an index.

    If the instruction is known, its pointer register must have been null; in C library functions a small pointer is
    null plus a member's offset. Without known registers, a small address is enough.
    """
    if not access.given or access.address is None:
        return False
    pointer = pointer_of(access)
    if pointer is None:
        return near_null(access)
    if pointer.value == 0:
        return near_null(access) or _nothing_there(crash)
    return near_null(access) and small_number(crash, access) is None


def _nothing_there(crash: Crash) -> bool:
    return crash.fault is not None and crash.fault.code == "SEGV_MAPERR" and crash.fault.mapping is None


def small_number(crash: Crash, access: BadAccess) -> Pointer | None:
    """The pointer that holds a small number which is not 0: data that was taken for a pointer, or null with an offset."""
    pointer = pointer_of(access)
    if pointer is None or not access.given or abs(pointer.offset) >= NEAR_NULL:
        return None
    if not near_null(access) and not _nothing_there(crash):
        return None
    if pointer.value >= NEAR_NULL and given_number(crash, pointer.value) is not None:
        return pointer
    if not on_windows(crash) and chunk_of_malloc(pointer.value) is not None:
        return pointer if pointer.value < NO_ADDRESS else None
    if not 0 < pointer.value < NEAR_NULL or (pointer.offset == 0 and pointer.value % 4 == 0):
        return None  # without an offset in the instruction, one may have been added to null before it
    first = next(iter(frames_of(crash)), None)
    in_c_library = first is not None and noise_of_module(first) and not is_interpreter(first)
    return None if in_c_library else pointer


def small_number_in_words(crash: Crash, pointer: Pointer) -> str:
    """What such a pointer tells, as the end of a sentence that names who used it."""
    given = given_number(crash, pointer.value)
    if given is not None:
        return given.in_words
    size = None if on_windows(crash) else chunk_of_malloc(pointer.value)
    what = f"through a pointer that holds the number {pointer.value:#x}, which is not an address"
    if size is None:
        return what
    return f"{what}: malloc keeps this number beside a block of {size:,} bytes, so a slot outside a block was read as a pointer"


def causes_of_small_number(crash: Crash, access: BadAccess) -> tuple[Possibility, ...]:
    """What can have put a small number where a pointer is expected, the most probable first."""
    pointer = small_number(crash, access)
    if pointer is None or given_number(crash, pointer.value) is not None:
        return ()
    outside = Possibility(
        cause="An index ran past the end of an array of pointers, and the data there was used as a pointer",
        rule="heap-buffer-overflow",
        decide="AddressSanitizer or valgrind names the block and the access that missed it",
    )
    offset = Possibility(
        cause=f"A null pointer to which {pointer.value:#x} had been added: the address of a member or element of a missing object",
        rule="null-dereference",
        decide="The caller passes the address of a member (`&object->member`, `array + index`): check whether that object can be null",
    )
    data = Possibility(
        cause="The object was overwritten, or freed and used again for other data",
        rule="use-after-free",
        decide="AddressSanitizer or valgrind reports the write or the free",
    )
    if not on_windows(crash) and chunk_of_malloc(pointer.value) is not None:
        return (outside, data)
    return (offset, outside, data) if pointer.value % 4 == 0 else (outside, data, offset)


def null_arguments(crash: Crash) -> tuple[Frame, tuple[str, ...]] | None:
    """The innermost function with its arguments printed as null by a debugger, which often omits the address."""
    fault = crash.fault
    if fault is None or fault.address is not None or fault.code is not None:
        return None
    frames = frames_of(crash)[:6]
    frame = next((one for one in frames if one.function and noise(one) not in {"string", "allocator", "abort"}), None)
    if frame is None or not frame.locals:
        return None
    null = tuple(name for name, value in frame.locals.items() if int(value, 16) < NEAR_NULL)
    return (frame, null) if null else None


def is_wild(access: BadAccess) -> bool:
    """The address is none that this processor could ever map: the pointer itself was overwritten or never set."""
    return not access.given and access.address is not None and not is_canonical(access.address)


def in_allocator(crash: Crash) -> str | None:
    """The allocator's or the garbage collector's function that faulted: it only walked over what others destroyed."""
    for frame in frames_of(crash)[:6]:
        if frame.function is None:
            return None
        name = bare_name(frame.function)
        if name in _COLLECTS or noise(frame) == "allocator":
            return name
        if noise(frame) not in {"string", "system"}:
            return None
    return None


def within_ntdll(crash: Crash) -> bool:
    """It faulted in a function of ntdll.dll whose name is not known: nearly always one of Windows' heap."""
    frame = next(iter(frames_of(crash)), None)
    module = file_name(frame.module or "").lower() if frame is not None and frame.function is None else ""
    return module in {"ntdll.dll", "ntdll"}


HEAP_OF_WINDOWS = Possibility(
    cause="A block of the heap was overwritten or freed twice: Windows' heap is a part of ntdll.dll, and walked over it",
    rule="heap-corruption",
    decide="The name of the function, from Microsoft's PDB of ntdll.dll, such as RtlFreeHeap, RtlAllocateHeap or RtlpFreeHeap",
    command="gflags /p /enable PROGRAM.exe /full",
)


def what_lies_there(crash: Crash, access: BadAccess) -> Found:
    """The mapping at the fault address, or that there is none."""
    fault = crash.fault
    if fault is None or access.address is None:
        return ()
    if is_wild(access):
        return (
            Evidence(
                claim="the address is impossible on this processor (not canonical)",
                seen=f"{access.operand.text if access.operand else 'address'} = {access.address}",
                where="computed from the registers; Windows does not report such an address"
                if on_windows(crash)
                else "computed from the registers; the kernel does not report such an address",
            ),
        )
    if fault.mapping is not None:
        path = f" {fault.mapping.path}" if fault.mapping.path else ""
        return (
            Evidence(
                claim="what is mapped at this address",
                seen=f"{fault.mapping.low}-{fault.mapping.high} {fault.mapping.permissions}{path}",
                where="memory map of the process",
            ),
        )
    if fault.code == "SEGV_MAPERR":
        return (
            Evidence(
                claim="nothing is mapped at this address",
                seen=str(access.address) if on_windows(crash) else f"SEGV_MAPERR, {access.address}",
                where="memory of the process" if on_windows(crash) else place_of(crash),
            ),
        )
    return ()


def evidence(crash: Crash, access: BadAccess) -> Found:
    """The instruction with its registers, what lies at the address, and whether the code was made at run time."""
    told = instruction_at_fault(crash) + what_lies_there(crash, access)
    if not is_null(crash, access):
        told += evidence_of(crash, half_pointer(crash))
    told += refused_tag(crash) + refused_signature(crash, access.address)
    return told + generated_code(crash) + _told_place(crash)


def nothing_known(crash: Crash) -> bool:
    """Nobody has seen whether something is mapped at the address: a small dump of Windows does not say."""
    return on_windows(crash) and crash.fault is not None and crash.fault.code is None and crash.fault.mapping is None


def where_it_led(crash: Crash, access: BadAccess, verb: str) -> str:
    """Where the access went, in words; ``verb``: what it may not do there, read or write."""
    if access.address is None and crash.fault is not None and crash.fault.code != "SI_KERNEL":
        return "memory that it may not touch (the address is not known)"
    if of_constant(crash, access):
        return f"{access.address}, an address that is a constant in its code"
    if access.address is None:
        system = "Windows" if on_windows(crash) else "the kernel"
        return f"an address that {system} does not report, which happens for pointers that are garbage"
    if (half := half_pointer(crash)) is not None:
        return in_words(half)
    if is_wild(access):
        return f"{access.address}, an address that cannot exist: the pointer is garbage"
    if refused_tag(crash):
        return f"address {access.address} through a pointer whose tag is not that of the memory there: it was freed, or belongs to another block"
    if refused_signature(crash, access.address):
        return f"address {access.address}: the signature of the pointer was wrong, so it had been overwritten"
    if not nothing_known(crash) and crash.fault is not None and crash.fault.code == "SEGV_MAPERR":
        return f"address {access.address}, which is not mapped"
    return f"address {access.address}, which it may not {verb}"


def of_constant(crash: Crash, access: BadAccess) -> bool:
    """The code itself put the number into the register that was used as the pointer."""
    pointer = pointer_of(access)
    if crash.instruction is None or pointer is None or is_of_nobody(crash):
        return False  # code that was made at run time holds addresses
    return pointer.register in crash.instruction.literals


def how_sure(crash: Crash, access: BadAccess) -> Confidence:
    """That it faulted there is certain; where the heap may have been corrupt before, the reason is not."""
    if access.kind is None or in_allocator(crash) is not None:
        return "possible"
    wild = is_wild(access) and not of_constant(crash, access)
    doubtful = access.address is None or wild or within_ntdll(crash) or is_of_nobody(crash)
    doubtful = doubtful or small_number(crash, access) is not None or half_pointer(crash) is not None
    return "likely" if doubtful else "certain"


@dataclass(frozen=True)
class Doer:
    """The code that made the access: ``name`` is the sentence's subject, ``besides`` its end.

    ``advice`` is the first piece of advice if it is not about the named function.
    """

    name: str
    culprit: Culprit | None
    besides: str = ""
    advice: str | None = None


def doer(crash: Crash, culprit: Culprit | None) -> Doer:
    """The culprit; where that is only the nearest frame that is not the interpreter's, Python's function that it called."""
    frames = frames_of(crash)
    if culprit is not None and culprit.nearest:
        blamed = next((one for one in frames if one.function == culprit.function), None)
        called = handed_to(frames, blamed) if blamed is not None else None
        inside = f"Python's {short(called.function)}" if called is not None else "Python's own code"
        caller = short(culprit.function) if culprit.function else f"a function of {culprit.module}"
        return Doer(
            inside,
            culprit,
            f"; {NEAREST} is {caller}",
            f"Check what {caller} passes to {inside}: a null pointer for an object, a freed object, or something that is not an object.",
        )
    if culprit is not None and culprit.python is not None and _is_called_by_ctypes(culprit, frames):
        place = f"{file_name(culprit.python.file or '?')}:{culprit.python.line}"
        text = (
            f"Look at the addresses that {place} hands over through ctypes: set argtypes and restype of each function that is "
            "called (without them a pointer is cut to 32 bits), and keep what it points to referenced."
        )
        name = f"{short(culprit.function)}, which {place} called through ctypes,"
        return Doer(name, Culprit(python=culprit.python), advice=text)
    return _called_by_native(frames, culprit) or Doer(who(culprit), culprit)


_JVM_INTERFACE = re.compile(r"(?:jni|checked_jni|JVM)_\w+$")


def _called_by_native(frames: tuple[Frame, ...], culprit: Culprit | None) -> Doer | None:
    """Native code called the Java virtual machine through JNI, which does not check its arguments."""
    inside = list(itertools.takewhile(lambda one: file_name(one.module or "").startswith("libjvm."), frames))
    entry, caller = (inside[-1], frames[len(inside)]) if 0 < len(inside) < len(frames) else (None, None)
    if entry is None or caller is None or caller.function is None or caller.module is None:
        return None
    if entry.function is None or not _JVM_INTERFACE.match(bare_name(entry.function)):
        return None
    call = short(entry.function)
    return Doer(
        who(culprit),
        culprit,
        f"; {short(caller.function)} called the virtual machine's {call}",
        f"Check what {short(caller.function)} passes to {call}: a class, object or ID that is null, because FindClass, "
        "GetMethodID or the like before it found nothing, or a reference that is not valid any more (-Xcheck:jni says which).",
    )


def _is_called_by_ctypes(culprit: Culprit, frames: tuple[Frame, ...]) -> bool:
    """The crash is in ctypes or Python, and ctypes called it."""
    at = next((index for index, one in enumerate(frames) if one.function == culprit.function), None)
    if at is None or not is_interpreter(frames[at]):
        return False
    near = outside_of_python(frames)[at : at + 8]
    return any(file_name(one.module or "").startswith(("_ctypes.", "libffi")) for one in near)


def _told_place(crash: Crash) -> Found:
    """A text's innermost frame if it is the system's or Python's, which no verdict names."""
    frame = next(iter(frames_of(crash)), None)
    if frame is None or frame.found_by != "text" or not (frame.function or frame.module):
        return ()
    if noise(frame) is None and not noise_of_module(frame):
        return ()
    name = frame.function or (f"{frame.module}+{frame.module_offset}" if frame.module_offset else frame.module)
    within = f" in {frame.module}" if frame.function and frame.module else ""
    return (Evidence(claim="where it faulted", seen=f"{name}{within}", where=f"frame {frame.index}"),)


def first_look(crash: Crash, by: Doer, small: Pointer | None, otherwise: str) -> Fix:
    """The first piece of advice on a bad access: where to look for the pointer that was wrong."""
    if half_pointer(crash) is not None:
        return fix(crash)
    given = given_number(crash, small.value) if small is not None else None
    if given is not None:
        return given.cure
    if by.advice is not None:
        return Fix(text=by.advice)
    access = bad_access(crash)
    if access is not None and of_constant(crash, access):
        return Fix(
            text=f"Look in {by.name} for the constant {access.address}: a placeholder, a register of a device, or a crash on purpose."
        )
    if small is not None:
        otherwise = (
            "find where the pointer was read from: check the index of that access, and whether the object can be null."
        )
    return Fix(text=f"In {by.name}, {otherwise}")
