"""The heap is corrupted.

What happened
-------------
Native code wrote where it should not: past the end of a block from ``malloc`` or ``new``, before its begin, or into a
block that had been freed. That hit the bookkeeping that the allocator keeps between the blocks. Nothing happens at
that moment. Later, at some innocent ``malloc`` or ``free``, or in Python's garbage collector, the damage is noticed
or walked over, and the process dies there.

How to be sure
--------------
glibc says so in its own words (``free(): invalid next size``, ``corrupted size vs. prev_size``, ``malloc(): ...``):
then it is certain *that* the heap is corrupt, and the message says which kind of damage. A SIGSEGV inside ``malloc``,
``free`` or the garbage collector without such a message is only likely to be this. **The stack shows who noticed, not
who did it.** On Windows the process ends with 0xC0000374 (-1073740940), which means only this, or with 0xC0000409 and
the subcode 50. On macOS, malloc says ``pointer being freed was not allocated`` or ``incorrect checksum for freed
object``.

How to fix it now
-----------------
Run once with AddressSanitizer: it stops at the guilty write. Without a rebuild, ``necropsy run --guard`` stops at most
writes beyond a buffer, and ``MALLOC_CHECK_=3`` with glibc's debugging library brings the crash nearer to its cause. On Windows, use ``gflags /p /enable python.exe /full``; on
macOS, ``MallocScribble=1`` and ``MallocGuardEdges=1``. In a TensorFlow op, suspect an output allocated with one shape
and filled with another, or a loop that runs to ``<=``. Also suspect several threads of a Shard writing the same
elements, or an ``int`` index that overflowed.

How to prevent it
-----------------
Tests of every op at its limits under AddressSanitizer; loops over ``flat.size()``; ``.at()`` in debug builds.

What it is often mistaken for
-----------------------------
A bug in the function on top of the stack. A stack overflow, which often faults inside ``malloc``: there the stack is
full. Two allocators or two C++ runtimes in one process (``free(): invalid pointer`` at import or exit): then no write
is wrong, but the owner of the block is.

Sources
-------
- https://sourceware.org/glibc/manual/latest/html_node/Heap-Consistency-Checking.html
- https://clang.llvm.org/docs/AddressSanitizer.html
"""

from __future__ import annotations

from necropsy.model import Confidence, Crash, Culprit, Evidence, Fix, Possibility
from necropsy.predicates import died_by, frames_of, messages, on_windows, quote
from necropsy.rule import Finding, Found, Rule, Tried
from necropsy.rules import cpp_runtimes, musl
from necropsy.rules.aborts import aborted, may_have_aborted
from necropsy.rules.culprit import culprit_of, python_line
from necropsy.rules.exit_causes import of_status
from necropsy.rules.experiment_proposals import of_heap
from necropsy.rules.foreign_calls import declare, undeclared
from necropsy.rules.guarded import allocator_in_words, evidence_of, guarded_block
from necropsy.rules.heap import (
    GUARD,
    MEANS,
    NOT_IN_USE,
    ON_WINDOWS,
    Damage,
    complaint,
    damage,
    ways_to_find,
)
from necropsy.rules.machinery import named, suspects
from necropsy.rules.pointers import bad_access, evidence, in_allocator, is_wild, near_null
from necropsy.rules.wording import sentence, size, who


def _match(crash: Crash) -> Finding | None:
    if crash.guarded_block is not None:
        return _by_guard(crash)
    message = complaint(crash)
    if cpp_runtimes.mixed(crash) is not None:
        return None
    if message is not None and may_have_aborted(crash):
        sort = damage(message)
        if sort == "double-free":
            return None
        died = aborted(crash)
        return Finding(
            evidence=(
                quote(message, "the C library found the heap destroyed"),
                *died,
                *undeclared(crash),
                *_noticed(crash),
                *python_line(crash),
            ),
            summary=f"The heap is corrupt: {MEANS[sort]}; the place where it died only noticed it.",
            confidence=_how_sure(crash, sort, died),
            culprit=_where(crash),
            fixes=_fixes(crash, sort),
            possible=(_OF_ANOTHER,) if sort == "bad-pointer" and not frames_of(crash) else (),
        )
    if noticed := _on_windows(crash):
        status = crash.exit.ntstatus if crash.exit is not None else None
        of_list = bool(status and status.fast_fail and status.fast_fail.code == _LIST_ENTRY)
        found = "a list's links destroyed" if of_list else "a block's bookkeeping destroyed"
        failures = messages(crash, "heap-failure")[-1:]
        if failures:
            found = f"that {failures[0].fields['what']}"
        freed_twice = bool(failures) and failures[0].fields.get("failure") == NOT_IN_USE
        return Finding(
            evidence=(
                *noticed,
                *(quote(one, "what Windows says of the damage") for one in failures),
                *_noticed(crash),
                *python_line(crash),
            ),
            summary=f"The heap is corrupt: Windows found {found}; the place where it died only noticed it.",
            confidence="possible" if freed_twice else "likely" if of_list else "certain",
            culprit=_where(crash),
            fixes=ON_WINDOWS,
            possible=of_status(0xC0000374) if not frames_of(crash) else (),
        )
    if trapped := musl.trapped_in_malloc(crash):
        return Finding(
            evidence=(*trapped, *_noticed(crash), *python_line(crash)),
            summary="The heap is corrupt, or a block was freed twice: musl's malloc found its bookkeeping destroyed; the place where it died only noticed it.",
            confidence="certain" if musl.is_of_malloc(crash) else "likely",
            culprit=_where(crash),
            fixes=(
                Fix(
                    text="AddressSanitizer, which does not run with musl, names the guilty write: build the program once for glibc, with it.",
                    command="g++ -g -O1 -fsanitize=address -fno-omit-frame-pointer ...",
                ),
            ),
        )
    return _without_words(crash)


def _by_guard(crash: Crash) -> Finding | None:
    """The guard allocator was given an address inside a block of its own."""
    block = guarded_block(crash, "freed-inside")
    if block is None:
        return None
    culprit = culprit_of(crash)
    return Finding(
        evidence=(*evidence_of(block), *aborted(crash), *python_line(crash)),
        summary=f"{sentence(who(culprit))} freed an address {size(block.offset or 0)} into a block of {size(block.size)}.",
        confidence="certain",
        culprit=culprit,
        fixes=(Fix(text=f"Free what malloc returned{allocator_in_words(block)}, not an address inside the block."),),
    )


def _how_sure(crash: Crash, sort: Damage, died: Found) -> Confidence:
    """A pointer that malloc does not know need not mean an overwrite: a stack shows who freed it."""
    if sort == "maybe-double-free":
        return "possible"
    return "certain" if died and (sort != "bad-pointer" or frames_of(crash)) else "likely"


_OF_ANOTHER = Possibility(
    cause="The block is of another allocator or another copy of a C++ library in this process",
    rule="conflicting-libraries",
    decide="Does it work with the imports in another order, or without one of the native packages?",
    command='python -X faulthandler -c "import SECOND, FIRST"',
)


def _on_windows(crash: Crash) -> Found:
    """Windows' heap detected damage and ended the process, invisible to exception handlers."""
    status = crash.exit.ntstatus if crash.exit is not None else None
    subcode = status.fast_fail.code if status is not None and status.fast_fail is not None else None
    if status is None or not (status.value.upper() == "0XC0000374" or subcode in _SUBCODES_OF_THE_HEAP):
        return ()
    seen = f"{status.value} ({status.signed})" + (f", {status.name}" if status.name else "")
    if status.fast_fail is not None:
        seen += f", subcode {status.fast_fail.code} {status.fast_fail.name or ''}".rstrip()
    where = "exit status" if crash.crashed_thread is None else "exception record"
    return (Evidence(claim="Windows found the heap destroyed", seen=seen, where=where),)


_LIST_ENTRY = 3
_SUBCODES_OF_THE_HEAP = {_LIST_ENTRY, 50}
"""``FAST_FAIL_CORRUPT_LIST_ENTRY``: the links of a list lie in heap blocks, mostly; and
``FAST_FAIL_HEAP_METADATA_CORRUPTION`` (winnt.h)."""


def _without_words(crash: Crash) -> Finding | None:
    """A bad access that may result from an earlier write: in the allocator, the collector, or by a garbage pointer."""
    access = bad_access(crash)
    if access is None:
        return None
    function = in_allocator(crash)
    if function is None and not is_wild(access):
        return None
    if function is not None:
        frame = next(frame for frame in frames_of(crash) if frame.function and function in frame.function)
        seen = Evidence(
            claim="the allocator or the garbage collector met something that is not one of its blocks",
            seen=f"faulted in {frame.function}",
            where=f"frame {frame.index}",
        )
        summary = f"`{function}` used memory that other code had overwritten before: the heap is probably corrupt."
    else:
        seen = Evidence(
            claim="a pointer in memory was overwritten with something that is not an address",
            seen=str(access.address),
            where="registers",
        )
        summary = "A pointer was overwritten with something that is not an address; a write past the end of a block may have done that."
    return Finding(
        evidence=(*died_by(crash, "SIGSEGV", "SIGBUS"), seen, *evidence(crash, access), *python_line(crash)),
        summary=summary,
        confidence="likely" if function is not None and not near_null(access) else "possible",
        culprit=_where(crash),
        fixes=ways_to_find(crash),
    )


def _noticed(crash: Crash) -> Found:
    """The function that met the damage: evidence, but not the culprit."""
    culprit = culprit_of(crash)
    if culprit is None or culprit.function is None:
        return ()
    return (
        Evidence(
            claim="who noticed it, which need not be who did it",
            seen=culprit.function + (f" in {culprit.module}" if culprit.module else ""),
            where="stack of the thread that crashed",
        ),
    )


def _where(crash: Crash) -> Culprit | None:
    """Only the Python line, because the visible functions may be innocent."""
    culprit = culprit_of(crash)
    return Culprit(python=culprit.python) if culprit is not None and culprit.python is not None else None


def _fixes(crash: Crash, sort: str) -> tuple[Fix, ...]:
    loaded = suspects(crash)
    fixes = (*declare(crash, loaded), _first_fix(sort), *ways_to_find(crash))
    if on_windows(crash) or not loaded or any(one.whose is None or one.whose.owner == "native-code" for one in loaded):
        return fixes
    # Only code of packages was loaded: its user can neither change nor rebuild it.
    return (
        GUARD,
        Fix(text=f"Then leave out one of these at a time, or use another version of it: {named(loaded)}."),
        *(fix for fix in fixes if fix is not GUARD),
    )


def _first_fix(sort: str) -> Fix:
    if sort == "bad-pointer":
        return Fix(
            text="Free only what malloc returned, by the matching function (free, delete, delete[]) and in the library that "
            "allocated it; if that is the case, look for a write past the end of the block before it."
        )
    if sort in {"overrun", "bad-header"}:
        return Fix(
            text="Compare, in the ops that ran so far, the size that was allocated with the number of elements that are written."
        )
    return Fix(
        text="Look for a pointer or reference that is used after its owner was freed or grew, and for writes past an array's end."
    )


RULE = Rule(
    _match,
    beats=("abort", "killed-by-signal", "exit-status-only"),
    experiments=of_heap,
    tried=Tried(
        advice=(
            "Compare the size that was allocated with the number of elements that are written, in what ran so far."
        ),
        result="crash gone",
        how=(
            "The loop that wrote 60 bytes into a block of 40 was bounded by the block's size; the program "
            "then ended normally. The verdict does not name that loop: AddressSanitizer and valgrind do, "
            "which the examples hold (docs/explanation/tried-on.md)."
        ),
        test="tests/rules/test_advice.py::test_native",
    ),
    hit="""
        signal SIGABRT SI_TKILL
        sent-by itself
        thread 4711 python3 crashed
        frame raise @ libc.so.6 takes 16
        frame abort @ libc.so.6 takes 160
        frame __libc_message @ libc.so.6 takes 300
        frame malloc_printerr @ libc.so.6 takes 16
        frame _int_free @ libc.so.6 takes 64
        frame __libc_free @ libc.so.6 takes 64
        frame FillOp::Compute(tensorflow::OpKernelContext*) @ op.so in op.cc:31 takes 32
        log free(): invalid next size (fast)
    """,
    miss="""
        signal SIGSEGV SEGV_MAPERR 0x7ffc00000ff8 write
        thread 4711 python3 crashed
        stack 8MiB used 8MiB exhausted main
        frame _int_malloc @ libc.so.6 takes 176
        frame malloc @ libc.so.6 takes 32
        frame Flatten(Node*) @ op.so in op.cc:12 takes 80
        frames 104860
        fold 1 x 104850 takes 80: Flatten(Node*)
    """,
)
