"""Freed memory was used as if it were alive.

What happened
-------------
The program followed a pointer that it had read out of memory which was freed before. The memory had been filled on purpose when it was freed (by
``MALLOC_PERTURB_``, ``PYTHONMALLOC=debug``, or a debugging allocator), and that filling now served as an address.

How to be sure
--------------
The address or a register that it was made from consists of one repeated byte that such fillings use: 0xdd (CPython: freed), 0xcd (CPython: not yet set), 0xfd
(CPython: the border of a block), 0xfe. Python runs with its debugging allocator, or the variable is set. Without a filling, freed
memory looks like any other, and this rule is silent.

How to fix it now
-----------------
Find the owner of the object that the named function works on, and who freed it: a tensor's buffer kept after the tensor, a reference into a vector that
grew, a borrowed Python reference kept without ``Py_INCREF``. The address sanitizer prints the free and the allocation.

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
"""

from __future__ import annotations

from necropsy.model import Address, Crash, Evidence, Fix
from necropsy.questions import died_by
from necropsy.rule import Finding, Rule
from necropsy.rules.culprit import culprit_of, python_line
from necropsy.rules.pointers import bad_access, evidence
from necropsy.rules.wording import sentence, who

_FILLINGS = {
    0xDD: "CPython's debugging allocator fills freed memory with 0xdd",
    0xFD: "CPython's debugging allocator puts 0xfd around every block",
    0xCD: "CPython's debugging allocator fills new memory with 0xcd",
    0xFE: "jemalloc and others fill freed memory with 0xfe",
    0x5A: "jemalloc fills freed memory with 0x5a",
    0x6B: "a debugging allocator fills freed memory with 0x6b",
}


def _filling(value: Address) -> int | None:
    """The byte that seven of the eight bytes of ``value`` consist of: a small offset may have changed the lowest."""
    byte = (value >> 24) & 0xFF
    high = value >> 16
    return byte if byte in _FILLINGS and high == int.from_bytes(bytes([byte]) * 6, "big") else None


def _match(crash: Crash) -> Finding | None:
    access = bad_access(crash)
    if access is None:
        return None
    values = dict(access.operand.registers) if access.operand else {}
    if access.address is not None:
        values["address"] = access.address
    filled = [(name, value, byte) for name, value in values.items() if (byte := _filling(value)) is not None]
    if not filled:
        return None
    name, value, byte = filled[0]
    culprit = culprit_of(crash)
    function = who(culprit)
    fresh = byte in {0xCD, 0xFD}
    seen = Evidence(claim=_FILLINGS[byte], seen=f"{name} = {value}", where="registers of the thread that crashed")
    what = "not set yet or beyond its end" if fresh else "freed before"
    return Finding(
        evidence=(*died_by(crash, "SIGSEGV", "SIGBUS"), seen, *evidence(crash, access), *python_line(crash)),
        summary=f"{sentence(function)} used a pointer that it had read from memory that was {what} (it is {value}, a debugging allocator's filling).",
        confidence="likely",
        culprit=culprit,
        fixes=(Fix(text=f"Find who freed the object that {function} works on, and keep its owner alive until then."),),
    )


RULE = Rule(
    name="use-after-free",
    subject=Crash,
    title="Freed memory was used",
    match=_match,
    page=__doc__ or "",
    needs=("fault", "instruction"),
    beats=("invalid-read", "invalid-write", "heap-corruption", "misaligned-access"),
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
    references=("https://docs.python.org/3/c-api/memory.html#default-memory-allocators",),
)
