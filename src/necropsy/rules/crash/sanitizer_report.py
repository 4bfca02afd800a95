"""A sanitizer found an error.

What happened
-------------
The program, or a library in it, was compiled with a sanitizer (``-fsanitize=...``), which checks every access and
stops at the first wrong one, or reports it and continues. Its report names the kind of error, the line, and often who
allocated and freed the memory.

How to be sure
--------------
The report itself: ``ERROR: AddressSanitizer: stack-buffer-overflow``, ``runtime error: signed integer overflow``,
``WARNING: MemorySanitizer``. The first line and the first frame below it that is not part of the sanitizer are what
counts.

How to fix it now
-----------------
Go to the named line. *stack-buffer-overflow* (a read) and *global-buffer-overflow* are an index past an array.
*stack-use-after-scope* and *stack-use-after-return* are a pointer to a local variable that no longer exists.
*alloc-dealloc-mismatch* is new and free mixed. *bad-free* is a pointer that malloc never returned. *detected memory
leaks* is not a crash (``ASAN_OPTIONS=detect_leaks=0`` for Python, which leaks at exit). A heap overflow, freed
memory, a double free, a race and a signal have their own rules.

How to prevent it
-----------------
Run the tests of native code with ``-fsanitize=address,undefined`` in CI.

What it is often mistaken for
-----------------------------
A crash: the sanitizer ended the program on purpose. An error of the program, where the sanitizer itself could not
begin (*ASan runtime does not come first*, *unexpected memory mapping*). A leak report at the end of a Python program:
CPython does not free everything.

Sources
-------
- https://clang.llvm.org/docs/AddressSanitizer.html
- https://clang.llvm.org/docs/UndefinedBehaviorSanitizer.html
"""

from __future__ import annotations

from necropsy.model import Crash, Evidence, Fix, Message
from necropsy.predicates import died_by, quote
from necropsy.rule import Finding, Found, Rule, Tried
from necropsy.rules.exit_causes import ENDS
from necropsy.rules.python import exit_evidence
from necropsy.rules.sanitizers import SIGNALS, around, culprit_in, kind_of, place_in, sanitizer_report, tool_of


def _match(crash: Crash) -> Finding | None:
    # Of a signal that a sanitizer met, the rules on signals say more.
    known = SIGNALS if crash.fault is not None else set()
    found = sanitizer_report(crash, lambda one: "data race" not in kind_of(one) and kind_of(one) not in known)
    if found is None:
        return None
    message, confidence = found
    if message.fields["kind"] in _NOT_BEGUN:
        return _not_begun(message)
    return Finding(
        evidence=(
            quote(message, "the report's first line"),
            *_summary(message),
            *around(message),
            *died_by(crash, "SIGABRT"),
            *exit_evidence(crash),
        ),
        summary=_what(message),
        confidence=confidence,
        culprit=culprit_in(message),
        fixes=(
            Fix(text=f"Look at the first frame of the report that is your own{place_in(message)}."),
            Fix(
                text="For names and lines, you need -g and a symbolizer.",
                command="ASAN_OPTIONS=symbolize=1:halt_on_error=1 python ...",
            ),
        ),
    )


_NOT_BEGUN = {
    "runtime-not-first": (
        "was loaded after other libraries, as happens where only an extension module is built with it, and refuses to work that way",
        "Load it first.",
        "LD_PRELOAD=$(gcc -print-file-name=libasan.so) python ...",
    ),
    "incompatible-runtimes": (
        "is there twice, once linked statically and once as a library",
        "Build everything with the same compiler and the same of -static-libasan and -shared-libasan.",
        None,
    ),
    "shadow-memory-taken": (
        "found the addresses that it needs for itself taken: newer kernels place libraries more randomly than older sanitizers can take",
        "Let the kernel place things less randomly, or use a newer compiler.",
        "sudo sysctl vm.mmap_rnd_bits=28",
    ),
}
"""Why a sanitizer did not even let the program begin."""


def _not_begun(message: Message) -> Finding:
    why, text, command = _NOT_BEGUN[message.fields["kind"]]
    return Finding(
        evidence=(quote(message, "the sanitizer's refusal"),),
        summary=f"{tool_of(message)} {why}; the program itself did nothing wrong.",
        confidence="certain",
        fixes=(Fix(text=text, command=command),),
        title="A sanitizer could not start",
    )


def _what(message: Message) -> str:
    if message.fields["kind"] == "leak":
        return f"{tool_of(message)} reported leaks, the first{place_in(message)}; a leak does not end a program early."
    return f"{tool_of(message)} reported {message.fields['kind']}{place_in(message)}."


def _summary(message: Message) -> Found:
    summary = message.fields.get("summary")
    return (Evidence(claim="its summary", seen=summary, where=message.where),) if summary else ()


RULE = Rule(
    _match,
    needs=("messages",),
    beats=(*ENDS, "invalid-read", "invalid-write", "null-dereference", "heap-corruption", "deliberate-trap"),
    tried=Tried(
        advice="Look at the first frame of the report that is your own.",
        result="crash gone",
        how=(
            "The named line added 1 to the largest int; with a long the sanitizer had nothing to report, and "
            "the program ended normally."
        ),
        test="tests/rules/test_advice_on_threads.py::test_what_a_sanitizer_found",
    ),
    hit="""
        exit 1
        log ==4711==ERROR: AddressSanitizer: global-buffer-overflow on address 0x5581 at pc 0x7f bp 0x7f sp 0x7f
        log WRITE of size 4 at 0x5581 thread T0
        log     #0 0x7f12 in Fill(int*, int) /src/op.cc:12:5
        log SUMMARY: AddressSanitizer: global-buffer-overflow /src/op.cc:12:5 in Fill(int*, int)
    """,
    miss="""
        exit 0
        log kernel.cc:12:7: runtime error: signed integer overflow: 2147483647 + 1 cannot be represented in type 'int'
    """,
)
