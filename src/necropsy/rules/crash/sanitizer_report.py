"""A sanitizer found an error.

What happened
-------------
The program, or a library in it, was compiled with a sanitizer (``-fsanitize=...``), which checks every access and stops at the first wrong
one, or reports it and goes on. Its report names the kind of error, the line, and often who allocated and freed the memory.

How to be sure
--------------
The report itself: ``ERROR: AddressSanitizer: stack-buffer-overflow``, ``runtime error: signed integer overflow``, ``WARNING:
MemorySanitizer``. The first line and the first frame below it that is no part of the sanitizer are what counts.

How to fix it now
-----------------
Go to the named line. Kinds: *stack-buffer-overflow* and *global-buffer-overflow*: an index past an array; *SEGV on unknown address*: a bad
pointer; *attempting double-free*; *alloc-dealloc-mismatch*: new and free mixed; *detected memory leaks*: not a crash
(``ASAN_OPTIONS=detect_leaks=0`` for Python, which leaks at exit).

How to prevent it
-----------------
Run the tests of native code with ``-fsanitize=address,undefined`` in CI.

What it is often mistaken for
-----------------------------
A crash: the sanitizer ended the program on purpose. A leak report at the end of a Python program: CPython frees not everything.

Sources
-------
- https://clang.llvm.org/docs/AddressSanitizer.html
- https://clang.llvm.org/docs/UndefinedBehaviorSanitizer.html
"""

from __future__ import annotations

from necropsy.model import Crash, Evidence, Fix, Message
from necropsy.questions import died_by, quote
from necropsy.rule import Finding, Found, Rule
from necropsy.rules.python import exit_evidence
from necropsy.rules.sanitizers import culprit_in, place_in, sanitizer_report


def _match(crash: Crash) -> Finding | None:
    found = sanitizer_report(crash, lambda kind: "data race" not in kind)
    if found is None:
        return None
    message, confidence = found
    tool = message.fields.get("tool", "UndefinedBehaviorSanitizer")
    return Finding(
        evidence=(
            quote(message, "the report's first line"),
            *_summary(message),
            *died_by(crash, "SIGABRT"),
            *exit_evidence(crash),
        ),
        summary=f"{tool} reported {message.fields['kind']}{place_in(message)}.",
        confidence=confidence,
        culprit=culprit_in(message),
        fixes=(
            Fix(text=f"Look at the first frame of the report that is your own{place_in(message)}."),
            Fix(
                text="More detail: names and lines need -g and a symbolizer.",
                command="ASAN_OPTIONS=symbolize=1:halt_on_error=1 python ...",
            ),
        ),
    )


def _summary(message: Message) -> Found:
    summary = message.fields.get("summary")
    return (Evidence(claim="its summary", seen=summary, where=message.where),) if summary else ()


RULE = Rule(
    name="sanitizer-report",
    subject=Crash,
    title="A sanitizer found an error",
    match=_match,
    page=__doc__ or "",
    needs=("messages",),
    beats=(
        "abort",
        "invalid-read",
        "invalid-write",
        "null-dereference",
        "exit-status-only",
        "killed-by-signal",
        "python-exception",
        "heap-corruption",
        "deliberate-trap",
    ),
    hit="""
        exit 1
        log ==4711==ERROR: AddressSanitizer: stack-buffer-overflow on address 0x7ffd at pc 0x7f bp 0x7f sp 0x7f
        log WRITE of size 4 at 0x7ffd thread T0
        log     #0 0x7f12 in Fill(int*, int) /src/op.cc:12:5
        log SUMMARY: AddressSanitizer: stack-buffer-overflow /src/op.cc:12:5 in Fill(int*, int)
    """,
    miss="""
        exit 0
        log kernel.cc:12:7: runtime error: signed integer overflow: 2147483647 + 1 cannot be represented in type 'int'
    """,
    references=("https://clang.llvm.org/docs/AddressSanitizer.html",),
)
