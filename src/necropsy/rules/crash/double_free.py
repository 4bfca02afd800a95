"""A block of memory was freed twice.

What happened
-------------
Native code freed a block that it had freed before. Two owners each believed that the block was theirs. Usual cases
are a class copied without a copy constructor, or a raw pointer in two ``shared_ptr``s. Others are a buffer freed by C
and again by Python, or an error path that frees and falls through.

How to be sure
--------------
glibc says ``double free detected in tcache 2`` or ``double free or corruption (fasttop)``: both searched the free
blocks for this block, and found it. With ``(!prev)`` and ``(top)`` it is only likely: a write past the end of a
neighbouring block gives the same message.

How to fix it now
-----------------
The stack shows the *second* free: the named function. Find the other owner, and let exactly one of them free it:
``unique_ptr``, a deleted copy constructor (``Foo(const Foo&) = delete;``), ``p = nullptr`` after a manual free.
AddressSanitizer prints both frees and the allocation.

How to prevent it
-----------------
Use owning types instead of ``delete`` and ``free`` in your own code. With ctypes, say who frees, and set ``restype =
c_void_p`` for memory that C owns.

What it is often mistaken for
-----------------------------
Heap corruption in general, of which it is the best understood kind; and ``free(): invalid pointer``, where the
pointer never was a block.

Sources
-------
- https://cwe.mitre.org/data/definitions/415.html
- https://sourceware.org/git/?p=glibc.git;a=blob;f=malloc/malloc.c
"""

from __future__ import annotations

import re

from necropsy.model import Crash, Fix
from necropsy.predicates import messages, quote
from necropsy.rule import Finding, Rule, Tried
from necropsy.rules.aborts import aborted, may_have_aborted
from necropsy.rules.culprit import culprit_of, python_line
from necropsy.rules.experiment_proposals import of_heap
from necropsy.rules.foreign_calls import declare, undeclared
from necropsy.rules.guarded import evidence_of, freed_block, guarded_block, releaser_in_words
from necropsy.rules.heap import MEANS, NOT_IN_USE, ON_WINDOWS, complaint, damage
from necropsy.rules.machinery import suspects
from necropsy.rules.python import exit_evidence
from necropsy.rules.sanitizers import around, culprit_in, kind_of, place_in, sanitizer_report, tool_of
from necropsy.rules.windows_loader import ended_with, sanitizer_of
from necropsy.rules.wording import sentence, who


def _match(crash: Crash) -> Finding | None:
    return _by_guard(crash) or _by_sanitizer(crash) or _by_words(crash) or _by_record(crash)


def _by_guard(crash: Crash) -> Finding | None:
    """The guard allocator has a record of the block, and of who freed it first."""
    block = guarded_block(crash, "freed-twice")
    if block is None:
        return None
    culprit = culprit_of(crash)
    return Finding(
        evidence=(*evidence_of(block), *aborted(crash), *python_line(crash)),
        summary=f"{sentence(who(culprit))} freed {freed_block(block)} already.",
        confidence="certain",
        culprit=culprit,
        fixes=(Fix(text=f"It was freed before{releaser_in_words(block)}: let only one of the two own it."),),
    )


def _by_record(crash: Crash) -> Finding | None:
    """Windows' heap was given a block that is not in use, and wrote that into the record of its exception."""
    failed = [one for one in messages(crash, "heap-failure") if one.fields.get("failure") == NOT_IN_USE]
    ended = ended_with(crash, _HEAP_CORRUPTION, claim="Windows' heap ended the process")
    if not failed or not ended:
        return None
    culprit = culprit_of(crash)
    name = who(culprit)
    return Finding(
        evidence=(quote(failed[-1], "what Windows says of the damage"), *ended, *python_line(crash)),
        summary=f"{sentence(name)} freed a block that is not in use: most probably it had been freed already.",
        confidence="likely",
        culprit=culprit,
        fixes=(
            Fix(text=f"Find the other code that frees what {name} frees, and let only one of them own it."),
            *ON_WINDOWS,
        ),
    )


_HEAP_CORRUPTION = 0xC0000374


def _by_sanitizer(crash: Crash) -> Finding | None:
    found = sanitizer_report(crash, lambda one: kind_of(one) == "double-free")
    if found is None:
        return None
    message, confidence = found
    freed = message.fields.get("freed")
    first = f"It was freed before by {freed}" if freed else "The report names who freed it before"
    return Finding(
        evidence=(quote(message, f"the report of {tool_of(message)}"), *around(message), *exit_evidence(crash)),
        summary=f"Native code freed a block of memory that had been freed already{place_in(message)}.",
        confidence=confidence,
        culprit=culprit_in(message),
        fixes=(Fix(text=f"{first}: let only one of the two own it."),),
    )


def _by_words(crash: Crash) -> Finding | None:
    message = complaint(crash)
    if message is None or not may_have_aborted(crash):
        return None
    sort = damage(message)
    if sort not in {"double-free", "maybe-double-free"}:
        return None
    died = aborted(crash)
    culprit = culprit_of(crash)
    by_python = culprit is not None and _PYTHON.match(culprit.module or "") is not None
    name = "Python" if by_python else who(culprit)
    sure = sort == "double-free"
    return Finding(
        evidence=(
            quote(
                message,
                "the C library found the block among the free ones" if sure else "the C library refused to free it",
            ),
            *died,
            *undeclared(crash),
            *python_line(crash),
        ),
        summary=f"{sentence(name)} freed a block of memory that had been freed already."
        if sure
        else f"{sentence(name)} freed a block in a way that the C library refused: {MEANS[sort]}.",
        confidence="certain" if sure and died else "likely",
        culprit=culprit,
        fixes=(
            *declare(crash, suspects(crash)),
            _OF_PYTHON
            if by_python
            else Fix(text=f"Find the other code that frees what {name} frees, and let only one of them own it."),
            Fix(
                text="AddressSanitizer reports both the first and the second free: rebuild the native code with it and run once.",
                command=sanitizer_of(crash),
            ),
        ),
    )


_PYTHON = re.compile(r"(?:lib)?python\d", re.IGNORECASE)
"""The interpreter frees each block once: somebody else has freed it too, or written over what is beside it."""
_OF_PYTHON = Fix(
    text="Look for native code that writes past the end of a block, or that frees memory which Python owns."
)


RULE = Rule(
    _match,
    needs=("messages or guarded_block",),
    beats=("abort", "killed-by-signal", "exit-status-only", "sanitizer-report", "python-exception"),
    experiments=of_heap,
    tried=Tried(
        advice="Find the other code that frees what the named function frees, and let only one of them own it.",
        result="crash gone",
        how="The caller had freed the block already; without the second free, the program ended normally.",
        test="tests/rules/test_advice.py::test_native",
    ),
    hit="""
        signal SIGABRT SI_TKILL
        sent-by itself
        thread 4711 python3 crashed
        frame raise @ libc.so.6 takes 16
        frame abort @ libc.so.6 takes 160
        frame malloc_printerr @ libc.so.6 takes 16
        frame _int_free @ libc.so.6 takes 64
        frame free @ libc.so.6 takes 64
        frame release_buffer @ ext.so in ext.c:31 takes 32
        abort free(): double free detected in tcache 2
    """,
    miss="""
        signal SIGABRT SI_TKILL
        sent-by itself
        thread 4711 python3 crashed
        frame raise @ libc.so.6 takes 16
        frame abort @ libc.so.6 takes 160
        frame malloc_printerr @ libc.so.6 takes 16
        frame free @ libc.so.6 takes 64
        frame release_buffer @ ext.so in ext.c:31 takes 32
        abort free(): invalid pointer
    """,
)
