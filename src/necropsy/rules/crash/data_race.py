"""Two threads used the same memory at the same time.

What happened
-------------
Two threads accessed the same memory without a lock between them, and at least one of them wrote. What the memory
holds afterwards is chance, and so is whether the program survives.

How to be sure
--------------
ThreadSanitizer reports ``data race`` with both stacks. It reports what really happened in this run: each report is a
race. The program continues after it, so a later crash need not come from this race.

How to fix it now
-----------------
Protect the memory by a mutex, make it atomic, or give every thread its own part (in a TensorFlow kernel: Shard by
output rows, so that no two shards write the same element). Until then one thread hides it: ``OMP_NUM_THREADS=1
TF_NUM_INTRAOP_THREADS=1 python ...``.

How to prevent it
-----------------
Run the tests of threaded code under ``-fsanitize=thread`` in CI.

What it is often mistaken for
-----------------------------
A report about code that was not compiled with the sanitizer (Python itself, OpenMP without its annotations): such
reports are often false.

Sources
-------
- https://clang.llvm.org/docs/ThreadSanitizer.html
- https://github.com/google/sanitizers/wiki/ThreadSanitizerReportFormat
"""

from __future__ import annotations

from necropsy.model import Crash, Evidence, Fix, Message
from necropsy.predicates import NEAR_NULL, died_by, quote
from necropsy.rule import Finding, Found, Rule, Tried
from necropsy.rules.experiment_proposals import of_race
from necropsy.rules.python import exit_evidence
from necropsy.rules.sanitizers import access_in, around, culprit_in, kind_of, place_in, sanitizer_report, tool_of


def _is_race(message: Message) -> bool:
    """Two threads that both die of a null pointer write to the same address, and share nothing."""
    address = message.fields.get("address")
    return "data race" in kind_of(message) and (address is None or int(address, 16) >= NEAR_NULL)


def _match(crash: Crash) -> Finding | None:
    found = sanitizer_report(crash, _is_race)
    if found is None:
        return None
    message, confidence = found
    summary = message.fields.get("summary")
    # Its own exit code says that it ended the program's run with reports.
    if crash.exit is not None and crash.exit.code == EXIT_CODE:
        confidence = "certain"
    seen: Found = (Evidence(claim="its summary", seen=summary, where=message.where),) if summary else ()
    return Finding(
        evidence=(
            quote(message, f"the report of {tool_of(message)}"),
            *seen,
            *around(message),
            *died_by(crash, "SIGABRT", "SIGSEGV"),
            *exit_evidence(crash),
        ),
        summary=f"Two threads used the same memory without a lock{place_in(message)}{access_in(message)}.",
        confidence=confidence,
        culprit=culprit_in(message),
        fixes=(
            Fix(
                text="Put a mutex around both accesses, make the variable atomic, or let every thread write its own part."
            ),
        ),
    )


EXIT_CODE = 66
"""What a program ends with that would have ended well but had races (``TSAN_OPTIONS=exitcode``)."""

RULE = Rule(
    _match,
    needs=("messages",),
    beats=("sanitizer-report", "exit-status-only"),
    experiments=of_race,
    tried=Tried(
        advice=("Put a mutex around both accesses, make the variable atomic, or let every thread write its own part."),
        result="crash gone",
        how=("The variable became atomic; ThreadSanitizer had nothing to report, and the program ended normally."),
        test="tests/rules/test_advice_on_threads.py::test_what_a_sanitizer_found",
    ),
    hit="""
        exit 66
        log WARNING: ThreadSanitizer: data race (pid=4711)
        log   Write of size 4 at 0x7b0400000010 by thread T2:
        log     #0 Add(int*) /src/op.cc:7 (op.so+0x1139)
        log SUMMARY: ThreadSanitizer: data race /src/op.cc:7 in Add(int*)
    """,
    miss="""
        exit 66
        log WARNING: ThreadSanitizer: lock-order-inversion (potential deadlock) (pid=4711)
        log     #0 pthread_mutex_lock <null> (op.so+0x1139)
        log SUMMARY: ThreadSanitizer: lock-order-inversion (potential deadlock) /src/op.cc:7 in Add(int*)
    """,
)
