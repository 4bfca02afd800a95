"""The program used memory that was already freed.

What happened
-------------
The program followed a pointer that it had read from freed memory. The memory had been filled on purpose when it was
freed (by ``MALLOC_PERTURB_``, ``PYTHONMALLOC=debug``, or a debugging allocator), and that filling now served as an
address. Or the memory itself is gone: a large block that ``free`` returned to the system, a file or shared memory that
was closed, or the data of a library that was unloaded.

How to be sure
--------------
The address or a register that it was made from consists of one repeated byte that such fillings use: 0xdd (CPython:
freed), 0xcd (CPython: not yet set), 0xfd (CPython: the border of a block), 0xfe, 0x5a (jemalloc), 0xfeeefeee
(Windows). Or it is the address of a heap block shifted right by 12 bits: glibc (2.32 and later) marks the end of a
list of freed blocks that way, in their first word. ``necropsy run --guard`` keeps freed blocks unusable, and a record of
who freed each: then the use itself faults. AddressSanitizer reports *heap-use-after-free*. A freed callback
of ctypes or cffi is known by its place: the program died in libffi, on the way from native code to a Python function.

Memory that was returned to the system leaves other traces. A register or an array points to an unmapped address 16
bytes behind a page, and glibc's counts show that large blocks were freed. Or a ``mmap`` or ``SharedMemory`` object of
Python is closed, or glibc's record of an unloaded library is still in freed memory. The kernel itself keeps no record,
so the verdict is *likely*. Otherwise freed memory looks like any other, and this rule does not match.

How to fix it now
-----------------
Find the owner of the object that the named function works on, and the code that freed it. Usual cases are a tensor's
buffer kept after the tensor, and a reference into a vector that grew. Others are a borrowed Python reference kept
without ``Py_INCREF``, and a ``CFUNCTYPE`` object without any reference left. AddressSanitizer prints the free and the
allocation.

How to prevent it
-----------------
Keep owners (``shared_ptr``, ``TensorReference``, ``Py_NewRef``) where you keep pointers.

What it is often mistaken for
-----------------------------
A pointer that was never set: those are often null, or left over from something else.

Sources
-------
- https://docs.python.org/3/c-api/memory.html#default-memory-allocators (the debug hooks' bytes)
- https://man7.org/linux/man-pages/man3/mallopt.3.html (M_PERTURB)
- https://sourceware.org/git/?p=glibc.git;a=blob;f=malloc/malloc.c (PROTECT_PTR)
"""

from __future__ import annotations

from necropsy.model import Crash, Culprit, Evidence, Fix, Mapping, Proposal
from necropsy.predicates import NEAR_NULL, died_by, quote
from necropsy.rule import Finding, Rule, Tried
from necropsy.rules.callbacks import inside_callback
from necropsy.rules.culprit import culprit_of, python_line, python_place
from necropsy.rules.experiment_proposals import of_heap
from necropsy.rules.former import evidence_of_former, fixes_of, former_of, in_words, trials_of_former
from necropsy.rules.guarded import (
    allocator_in_words,
    evidence_of,
    freed_block,
    guarded_block,
    how_sure,
    releaser_in_words,
)
from necropsy.rules.machinery import of_numpy, of_python
from necropsy.rules.pointers import bad_access, doer, evidence
from necropsy.rules.python import exit_evidence
from necropsy.rules.sanitizers import access_in, around, culprit_in, kind_of, place_in, sanitizer_report, tool_of
from necropsy.rules.wording import sentence, short, who

_Z = 0x5A
_FILLINGS = {
    0xDD: "CPython's debugging allocator fills freed memory with 0xdd",
    0xFD: "CPython's debugging allocator puts 0xfd around every block",
    0xCD: "CPython's debugging allocator fills new memory with 0xcd",
    0xFE: "jemalloc and others fill freed memory with 0xfe",
    _Z: "jemalloc fills freed memory with 0x5a",
    0x6B: "a debugging allocator fills freed memory with 0x6b",
}
_WORDS = {
    0xFEEEFEEE: "Windows fills freed memory with 0xfeeefeee under a debugger",
    0xDEADBEEF: "several allocators and libraries mark freed memory with 0xdeadbeef",
    0xBAADF00D: "Windows fills new memory with 0xbaadf00d under a debugger",
}
_FRESH = ("0xcd", "0xfd", "0xbaadf00d")
_PAGE_BITS = 12


def _filling(value: int, perturb: int | None) -> str | None:
    """The pattern's source; the lowest two bytes may differ by an added offset."""
    byte = (value >> 24) & 0xFF
    if value >> 16 == int.from_bytes(bytes([byte]) * 6, "big"):
        if byte == perturb:
            return f"glibc fills freed memory with {byte:#x} (MALLOC_PERTURB_)"
        if byte in _FILLINGS:
            return _FILLINGS[byte]
    word = value >> 32
    return _WORDS.get(word) if (value >> 16) & 0xFFFF == word >> 16 else None


def _mangled(value: int, heaps: tuple[Mapping, ...]) -> Mapping | None:
    """The heap of the freed block that ends a free list, where glibc stores ``address >> 12``.

    ``PROTECT_PTR(position, 0)`` (glibc 2.32 and later, malloc/malloc.c) is the first word of such a block.
    """
    if value < NEAR_NULL:
        return None
    return next((one for one in heaps if one.low >> _PAGE_BITS <= value < one.high >> _PAGE_BITS), None)


def _match(crash: Crash) -> Finding | None:
    if crash.guarded_block is not None:
        return _by_guard(crash)
    return _by_sanitizer(crash) or _by_pattern(crash) or _by_callback(crash) or _by_former(crash)


def _by_guard(crash: Crash) -> Finding | None:
    """The guard allocator has a record of the block, and of who freed it."""
    block = guarded_block(crash, "freed")
    if block is None:
        return None
    culprit = culprit_of(crash)
    access = bad_access(crash)
    did = {"read": "read", "write": "wrote to"}.get((access.kind if access is not None else None) or "", "used")
    return Finding(
        evidence=(*evidence_of(block), *died_by(crash, "SIGSEGV"), *python_line(crash)),
        summary=f"{sentence(who(culprit))} {did} {freed_block(block)}.",
        confidence=how_sure(block),
        culprit=culprit,
        fixes=(
            Fix(
                text=f"Keep the owner of the block{allocator_in_words(block)} alive until {who(culprit)} has used it: it "
                f"was freed{releaser_in_words(block)}."
            ),
        ),
    )


def _by_former(crash: Crash) -> Finding | None:
    """The address was unmapped, and the process still shows what was there."""
    former, access = former_of(crash), bad_access(crash)
    if former is None or access is None:
        return None
    of_array = of_numpy(crash)
    place, _ = python_place(crash)
    in_numpy = of_array is not None and place is not None
    by = doer(crash, culprit_of(crash))
    name = "NumPy" if in_numpy else sentence(by.name)
    did = {"read": "read", "write": "wrote to"}.get(access.kind or "", "used")
    return Finding(
        evidence=(
            *died_by(crash, "SIGSEGV"),
            *evidence_of_former(crash),
            *evidence(crash, access),
            *python_line(crash),
        ),
        summary=f"{name} {did} {in_words(former)}{'' if in_numpy else by.besides}.",
        confidence="likely",
        culprit=Culprit(python=place) if in_numpy else by.culprit,
        fixes=fixes_of(former),
        title="Memory was used after it had been unmapped",
    )


def _experiments(crash: Crash) -> tuple[Proposal, ...]:
    former = former_of(crash)
    if former is not None and former.kind != "heap-block":
        return trials_of_former(crash)  # no heap takes part in it
    return (*trials_of_former(crash), *of_heap(crash))


def _by_callback(crash: Crash) -> Finding | None:
    """Native code called a freed callback of ctypes or cffi."""
    access = bad_access(crash)
    found, caller = inside_callback(crash)
    if access is None or not found:
        return None
    place, _ = python_place(crash)
    name = short(caller.function) if caller is not None and caller.function else "Native code"
    return Finding(
        evidence=(*died_by(crash, "SIGSEGV", "SIGBUS"), *found, *evidence(crash, access), *python_line(crash)),
        summary=f"{name} called a callback that Python had freed, because no reference to it was kept.",
        confidence="likely",
        culprit=Culprit(python=place) if place is not None else None,
        fixes=(
            Fix(
                text="Keep a reference to each callback as long as native code may call it: what CFUNCTYPE(...)(function) returned "
                "with ctypes, what ffi.callback returned with cffi. A global name or an attribute will do.",
                command="self._callback = CALLBACK(function)  # and hand over self._callback",
            ),
        ),
        title="A callback was called after it had been freed",
    )


def _by_sanitizer(crash: Crash) -> Finding | None:
    found = sanitizer_report(crash, lambda one: kind_of(one).startswith("heap-use-after-free"))
    if found is None:
        return None
    message, confidence = found
    freed = message.fields.get("freed")
    return Finding(
        evidence=(quote(message, f"the report of {tool_of(message)}"), *around(message), *exit_evidence(crash)),
        summary=f"Native code used memory after it had been freed{place_in(message)}{access_in(message)}.",
        confidence=confidence,
        culprit=culprit_in(message),
        fixes=(
            Fix(
                text=f"It was freed by {freed}: keep the owner alive until the last use."
                if freed
                else "The report names who freed it (`freed by thread`) and who allocated it: keep the owner alive."
            ),
        ),
    )


def _by_pattern(crash: Crash) -> Finding | None:
    access = bad_access(crash)
    if access is None or (crash.instruction is not None and crash.instruction.literals):
        return None  # what stands in the code was not read from freed memory
    values: dict[str, int] = dict(access.operand.registers) if access.operand else {}
    if access.address is not None:
        values["address"] = access.address
    perturb = _perturb(crash)
    seen = next(((name, value, text) for name, value in values.items() if (text := _filling(value, perturb))), None)
    if seen is None:
        seen = next(
            (
                (
                    name,
                    value,
                    f"glibc writes the block's address, shifted by {_PAGE_BITS} bits, into a freed block in {heap.path or 'a heap'} {heap.low}-{heap.high}",
                )
                for name, value in values.items()
                if (heap := _mangled(value, crash.heaps or ())) is not None
            ),
            None,
        )
    if seen is None:
        return None
    name, value, text = seen
    if text == _FILLINGS[_Z] and of_python(crash) is not None:
        return None  # Python's objects do not lie in jemalloc's blocks: somebody wrote these letters over one
    culprit = culprit_of(crash)
    function = who(culprit)
    fresh = any(one in text for one in _FRESH)
    what = "not set yet or beyond its end" if fresh else "freed before"
    return Finding(
        evidence=(
            *died_by(crash, "SIGSEGV", "SIGBUS"),
            Evidence(claim=text, seen=f"{name} = {value:#x}", where="registers of the thread that crashed"),
            *evidence(crash, access),
            *python_line(crash),
        ),
        summary=f"{sentence(function)} used a pointer that it had read from memory that was {what} (it is {value:#x}, which an allocator leaves there).",
        confidence="likely",
        culprit=culprit,
        fixes=(Fix(text=f"Find who freed the object that {function} works on, and keep its owner alive until then."),),
    )


def _perturb(crash: Crash) -> int | None:
    """The byte with which glibc is configured to fill freed memory."""
    text = ((crash.environment.variables or {}) if crash.environment else {}).get("MALLOC_PERTURB_", "")
    return int(text) & 0xFF if text.isdigit() else None


RULE = Rule(
    _match,
    title="Use of freed memory",
    beats=(
        *("invalid-read", "invalid-write", "heap-corruption", "misaligned-access", "sanitizer-report"),
        *("abort", "null-dereference", "python-exception", "exit-status-only", "killed-by-signal"),
        *("damaged-object", "interpreter-bug", "invalid-array-view"),
    ),
    experiments=_experiments,
    tried=Tried(
        advice="Find who freed the object that the named function works on, and keep its owner alive until then.",
        result="crash gone",
        how="The free that came before the last use was taken out; the program then ended normally.",
        test="tests/rules/test_advice.py::test_native",
    ),
    hit="""
        signal SIGSEGV SI_KERNEL
        at 0x7f0000001000 mov rax, qword ptr [rdi + 8]
        operand read [rdi + 8] = 0xdddddddddddddde5 size 8 rdi=0xdddddddddddddddd
        thread 4711 python3 crashed
        stack 8MiB used 20KiB whole main
        frame visit(Node*) @ ext.so in ext.cc:31 takes 32
    """,
    miss="""
        signal SIGSEGV SI_KERNEL
        at 0x7f0000001000 mov rax, qword ptr [rdi + 8]
        operand read [rdi + 8] = 0x4141414141414149 size 8 rdi=0x4141414141414141
        thread 4711 python3 crashed
        stack 8MiB used 20KiB whole main
        frame visit(Node*) @ ext.so in ext.cc:31 takes 32
    """,
)
