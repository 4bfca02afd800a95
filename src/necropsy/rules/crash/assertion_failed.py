"""An assertion in C or C++ code failed.

What happened
-------------
The code contains ``assert(condition)``. The condition was false, so ``assert`` printed one line and called
``abort()``. Assertions are active in debug builds only (where NDEBUG is not defined). So this is native code that was
built for debugging, or a standard library with its own assertions switched on (``_GLIBCXX_ASSERTIONS``: an index past
the end of a ``std::vector``).

How to be sure
--------------
The line ``file:line: function: Assertion `condition' failed.`` is in the log or in the C library's memory, and the
process died by SIGABRT. On Windows it is ``Assertion failed: condition, file x.cc, line 42``, in a box of the C
runtime or on stderr.

How to fix it now
-----------------
The condition says what the code relies on. Find the input that breaks it, in the named function. Do not silence it
with ``-DNDEBUG``: the program would continue with data that it cannot handle.

How to prevent it
-----------------
If an input can break the condition, an assertion is the wrong check: report an error (``OP_REQUIRES``, an exception).

What it is often mistaken for
-----------------------------
Python's AssertionError, which is an exception with a traceback. A failed CHECK, which is active in release builds
too.

Sources
-------
- https://man7.org/linux/man-pages/man3/assert.3.html
- https://gcc.gnu.org/onlinedocs/libstdc++/manual/using_macros.html (_GLIBCXX_ASSERTIONS)
"""

from __future__ import annotations

import re

from necropsy.model import Crash, Fix, Location
from necropsy.predicates import calls
from necropsy.rule import Finding, Rule, Tried
from necropsy.rules.aborts import abort_text, aborted, last, may_have_aborted
from necropsy.rules.culprit import culprit_of, python_line
from necropsy.rules.exit_causes import causes_of
from necropsy.rules.experiment_proposals import of_threads
from necropsy.rules.last_words import as_evidence
from necropsy.rules.reporters import ASSERTION
from necropsy.rules.windows_loader import ended_with
from necropsy.rules.wording import who


def _match(crash: Crash) -> Finding | None:
    message, words = last(crash, "assertion", "libstdcxx-assertion")
    if message is None and (asserted := _asserted_on_windows(crash)) is not None:
        return asserted
    if message is None:
        return _unheard(crash)
    if not may_have_aborted(crash):
        return None
    died = aborted(crash)
    machinery = calls(
        crash,
        ASSERTION,
        first=12,
        claim="the code that ends the program after a failed assertion",
    )
    fields = message.fields
    condition, author = _message_of(fields["expression"])
    said = f" Its message: \u201c{author.rstrip('.')}\u201d." if author else ""
    function = fields.get("function") or "native code"
    line = fields["source_line"]
    return Finding(
        evidence=words
        + died
        + machinery
        + (() if message.where == "__abort_msg" else abort_text(crash))
        + python_line(crash),
        summary=f"The assertion `{condition}` in `{function}` ({fields['file']}:{line}) failed.{said}",
        confidence="certain" if died else "likely",
        culprit=culprit_of(crash),
        fixes=(Fix(text=f"Find the input for which `{condition}` is false, and check it before the call."),),
        locations=(Location(path=fields["file"], line=int(line), role="assertion"),),
    )


def _unheard(crash: Crash) -> Finding | None:
    """A failed assertion's reporter is above abort(), but its message was neither read nor found in memory."""
    died, machinery = (
        aborted(crash),
        calls(crash, ASSERTION, first=12, claim="the code that reports a failed assertion"),
    )
    if crash.messages is not None or not died or not machinery or crash.fault is None:
        return None
    culprit = culprit_of(crash)
    of_library = any("__glibcxx_assert_fail" in one.seen for one in machinery)
    whose = "of the C++ library" if of_library else ""
    hint = (
        "Check indices before operator[], and that a container is not empty before front(), back() or pop_back()."
        if of_library
        else "Keep what is written to stderr: it names the file, the line and the assertion."
    )
    return Finding(
        evidence=machinery + died + as_evidence(crash.last_words) + python_line(crash),
        summary=f"An assertion {whose} failed in {who(culprit)}; its message was not seen.".replace("  ", " "),
        confidence="likely",
        culprit=culprit,
        fixes=(Fix(text=hint),),
    )


_WITH_MESSAGE = re.compile(
    r"""\(?(?P<condition>.{1,500}?)\)? ?&& ?\(?"(?P<after>(?:[^"\\]|\\.){1,300})"\)?$"""
    r"""|"(?P<before>(?:[^"\\]|\\.){1,300})" ?&& ?(?P<rest>.{1,500})$"""
)


def _message_of(expression: str) -> tuple[str, str | None]:
    """The condition, and its author's message: ``n > 0 && "n must be positive"``."""
    match = _WITH_MESSAGE.fullmatch(expression)
    if match is None:
        return expression, None
    if match["before"] is not None:
        return match["rest"], match["before"]
    return match["condition"], match["after"]


def _asserted_on_windows(crash: Crash) -> Finding | None:
    """STATUS_ASSERTION_FAILURE: the words of the assertion are lost."""
    failed = ended_with(crash, 0xC0000420, claim="an assertion failed")
    if not failed or crash.fault is not None:
        return None
    return Finding(
        evidence=failed + python_line(crash),
        summary="An assertion in native code failed; its message was not seen.",
        confidence="likely",
        culprit=culprit_of(crash),
        fixes=(
            Fix(text="Keep what is written to stderr: it names the file, the line and the assertion.", command=_KEEP),
        ),
        possible=causes_of(crash),
    )


_KEEP = "python -u train.py > log.txt 2>&1"

RULE = Rule(
    _match,
    title="An assertion in native code failed",
    experiments=of_threads,
    beats=("abort", "killed-by-signal", "exit-status-only"),
    tried=Tried(
        advice="Find the input for which the assertion is false, and check it before the call.",
        result="crash gone",
        how="The caller checked the input that the printed condition names; the program then ended normally.",
        test="tests/rules/test_advice.py::test_native",
    ),
    hit="""
        signal SIGABRT SI_TKILL
        sent-by itself
        thread 4711 python3 crashed
        frame raise @ libc.so.6 takes 16
        frame abort @ libc.so.6 takes 160
        frame __assert_fail_base @ libc.so.6 takes 64
        frame __assert_fail @ libc.so.6 takes 32
        frame half(int) @ op.so in op.c:12 takes 32
        log python3: op.c:12: half: Assertion `n % 2 == 0' failed.
    """,
    miss="""
        exit 1
        log Traceback (most recent call last):
        log   File "/home/u/train.py", line 3, in <module>
        log     assert n % 2 == 0
        log AssertionError
    """,
)
