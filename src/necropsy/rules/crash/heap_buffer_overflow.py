"""Native code ran past the end of a block on the heap.

What happened
-------------
A loop or a copy continued past the last byte of a block from ``malloc`` or ``new``. Mostly that hits a neighbour and
is noticed later (see heap-corruption). Here it was caught: by AddressSanitizer, by a checking allocator, by the guard of
``necropsy run --guard``, or because it ran on to the end of the mapped memory.

How to be sure
--------------
The guard of ``necropsy run --guard`` has a record of the block: its size, who allocated it, and how far from it the
access was. AddressSanitizer says *heap-buffer-overflow*; PYTHONMALLOC=debug says *bad trailing pad byte*; glibc's mcheck says
*memory clobbered past end of allocated block*. Or the fault address is exactly the first byte behind the heap's
mapping. A bad pointer points there only by chance; a loop that runs upwards always ends there.

How to fix it now
-----------------
Compare, in the named function, the size that was allocated with the number of elements that are read or written. In
TensorFlow ops: the output's shape against the loop's bound; ``flat<T>().size()`` is the truth.

How to prevent it
-----------------
Loops over ``size()`` of what is written; ``.at()`` and asserts in debug builds; tests under AddressSanitizer.

What it is often mistaken for
-----------------------------
A bad pointer. A use of freed memory, whose address is inside the heap. A full stack.

Sources
-------
- https://clang.llvm.org/docs/AddressSanitizer.html
- https://docs.python.org/3/c-api/memory.html#default-memory-allocators
"""

from __future__ import annotations

import re

from necropsy.model import Crash, Evidence, Fix, Mapping, Message
from necropsy.predicates import calls, died_by, messages, on_windows, quote
from necropsy.rule import Finding, Rule, Tried
from necropsy.rules.aborts import aborted, may_have_aborted
from necropsy.rules.culprit import culprit_of, python_line
from necropsy.rules.exit_causes import ENDS
from necropsy.rules.experiment_proposals import of_heap
from necropsy.rules.guarded import allocator_in_words, evidence_of, guarded_block, how_sure, side_of
from necropsy.rules.pointers import bad_access, evidence
from necropsy.rules.python import exit_evidence
from necropsy.rules.sanitizers import access_in, around, culprit_in, kind_of, place_in, sanitizer_report, tool_of
from necropsy.rules.wording import sentence, size, who

WIDEST = 64
"""Bytes of the widest access (a vector of 512 bits): the first byte that was refused lies at most so far behind."""
_GRANULARITY = 64 * 1024
"""Bytes: Windows lets every piece of memory that is asked of it begin at a multiple of this."""
_COPIES = r"(?:__)?(?:mem(?:cpy|move|set|pcpy|chr|cmp)|str(?:cpy|ncpy|cat|len|chr)|wmemset).*|__(?:mem|str)\w+_(?:avx|sse|evex|erms).*"
_PAST_THE_END = re.compile(r"bad trailing pad byte|buffer overflow")


def _match(crash: Crash) -> Finding | None:
    if crash.guarded_block is not None:
        return _by_guard(crash)
    return _by_sanitizer(crash) or _by_allocator(crash) or _by_mapping(crash)


def _by_guard(crash: Crash) -> Finding | None:
    """The guard allocator has a record of the block beside which the access was."""
    accessed = guarded_block(crash, "after-end", "before-start")
    damaged = guarded_block(crash, "overwritten-after", "overwritten-before")
    if accessed is not None:
        culprit = culprit_of(crash)
        access = bad_access(crash)
        did = {"read": "read", "write": "wrote"}.get((access.kind if access is not None else None) or "", "went")
        return Finding(
            evidence=(*evidence_of(accessed), *died_by(crash, "SIGSEGV"), *python_line(crash)),
            summary=f"{sentence(who(culprit))} {did} {side_of(accessed, culprit)}.",
            confidence=how_sure(accessed),
            culprit=culprit,
            fixes=(
                Fix(
                    text=f"Compare the {size(accessed.size)} that were allocated{allocator_in_words(accessed)} with the "
                    f"number of elements that {who(culprit)} reads or writes."
                ),
            ),
        )
    if damaged is None:
        return None
    return Finding(
        evidence=(*evidence_of(damaged), *aborted(crash), *python_line(crash)),
        summary=f"Native code wrote {side_of(damaged)}; it was noticed when the block was freed.",
        confidence="certain",
        fixes=(
            Fix(
                text=f"Find the code that writes into the block of {size(damaged.size)} allocated"
                f"{allocator_in_words(damaged)}, and compare that size with the number of elements that it writes."
            ),
            _SANITIZER,
        ),
    )


def _by_sanitizer(crash: Crash) -> Finding | None:
    found = sanitizer_report(crash, lambda one: kind_of(one).startswith(("heap-buffer-overflow", "container-overflow")))
    if found is None:
        return None
    message, confidence = found
    side = "before the beginning" if message.fields.get("side") == "before" else "past the end"
    return Finding(
        evidence=(quote(message, f"the report of {tool_of(message)}"), *around(message), *exit_evidence(crash)),
        summary=f"Native code went {side} of a block on the heap{place_in(message)}{access_in(message)}.",
        confidence=confidence,
        culprit=culprit_in(message),
        fixes=_FIXES,
    )


def _by_allocator(crash: Crash) -> Finding | None:
    """A checking allocator found the border overwritten when the block was freed, after the write itself."""
    found = [one for one in messages(crash, "python-fatal", "mcheck") if _says_past_the_end(one)]
    if not found or not may_have_aborted(crash):
        return None
    died = aborted(crash)
    return Finding(
        evidence=(
            quote(found[-1], "a checking allocator found the border behind a block overwritten"),
            *died,
            *python_line(crash),
        ),
        summary="Native code wrote past the end of a block on the heap; it was noticed when the block was freed.",
        confidence="certain" if died else "likely",
        fixes=_FIXES,
    )


def _says_past_the_end(message: Message) -> bool:
    if message.kind == "mcheck":
        return message.fields["what"].startswith("past end")
    return _PAST_THE_END.search(message.fields.get("text", "")) is not None


def _by_mapping(crash: Crash) -> Finding | None:
    """The first byte after mapped memory was accessed."""
    access = bad_access(crash)
    fault = crash.fault
    if access is None or fault is None or not access.given or access.address is None or fault.mapping_below is None:
        return None
    block, distance = fault.mapping_below, access.address - fault.mapping_below.high
    if not _is_heap(crash, block) or not 0 <= distance < WIDEST:
        return None
    if on_windows(crash) and access.address % _GRANULARITY < WIDEST:
        return None  # as well the begin of a piece of its own: memory that was given back, say
    copies = calls(crash, _COPIES, first=2, claim="a function that goes upwards through memory")
    culprit = culprit_of(crash)
    what = {"read": "read", "write": "wrote"}.get(access.kind or "", "went")
    return Finding(
        evidence=(
            *died_by(crash, "SIGSEGV"),
            Evidence(
                claim="the fault address is where mapped memory ends",
                seen=f"{access.address} is {distance} bytes behind {block.low}-{block.high} {block.permissions} {block.path or '(from malloc or mmap)'}",
                where="memory map of the process",
            ),
            *copies,
            *evidence(crash, access),
            *python_line(crash),
        ),
        summary=f"{sentence(who(culprit))} {what} on past the end of its block, up to the end of the mapped memory ({size(block.high - block.low)} precede it).",
        confidence="likely",
        culprit=culprit,
        fixes=_FIXES,
    )


def _is_heap(crash: Crash, block: Mapping) -> bool:
    """Writable memory without a file that is not a thread's stack: from malloc or mmap."""
    if not block.permissions.startswith("rw") or (block.path is not None and block.path != "[heap]"):
        return False
    stacks = [thread.stack for thread in crash.threads or () if thread.stack is not None]
    return not any(stack.pointer is not None and block.low <= stack.pointer < block.high for stack in stacks)


_SANITIZER = Fix(
    text="AddressSanitizer names the guilty access, with the block that it missed.",
    command="g++ -g -O1 -fsanitize=address -fno-omit-frame-pointer ...",
)
_FIXES = (
    Fix(text="Compare the size that was allocated with the number of elements that are read or written."),
    _SANITIZER,
)

RULE = Rule(
    _match,
    needs=(),
    beats=(
        *ENDS,
        "sanitizer-report",
        "heap-corruption",
        "python-fatal-error",
        "invalid-read",
        "invalid-write",
        "null-dereference",
    ),
    experiments=of_heap,
    tried=Tried(
        advice="Compare the size that was allocated with the number of elements that are read or written.",
        result="crash gone",
        how=(
            "The count was brought down to the ten elements that had been allocated; the program then ended normally."
        ),
        test="tests/rules/test_advice.py::test_native",
    ),
    hit="""
        signal SIGSEGV SEGV_MAPERR 0x555555800000 write
        below 0x555555700000-0x555555800000 rw-p [heap]
        at 0x7f0000001000 mov dword ptr [rdi], eax
        operand write [rdi] = 0x555555800000 size 4 rdi=0x555555800000
        thread 4711 python3 crashed
        stack 8MiB used 20KiB whole main
        frame Fill(int*, int) @ op.so in op.cc:12 takes 32
    """,
    miss="""
        signal SIGSEGV SEGV_MAPERR 0x555555800410 write
        below 0x555555700000-0x555555800000 rw-p [heap]
        at 0x7f0000001000 mov dword ptr [rdi], eax
        operand write [rdi] = 0x555555800410 size 4 rdi=0x555555800410
        thread 4711 python3 crashed
        stack 8MiB used 20KiB whole main
        frame Fill(int*, int) @ op.so in op.cc:12 takes 32
    """,
)
