"""A function overwrote its own stack frame.

What happened
-------------
A function wrote past the end of one of its local arrays and destroyed the guard value (the *canary*) that the
compiler had placed behind them. It was noticed when that function returned. The program ended itself before the
destroyed return address could be used: by SIGABRT on Linux and macOS (by SIGSEGV with musl), by a fast-fail on
Windows. The array that was overrun belongs to the function that noticed. Either that function overran it, or one that
it had called with a pointer to the array.

How to be sure
--------------
``__stack_chk_fail`` is on the stack of the thread that crashed, or ``*** stack smashing detected ***`` is in the log.
AddressSanitizer says *stack-buffer-overflow* of a WRITE. On Windows the subcode of 0xC0000409 is 0 or 2
(``FAST_FAIL_STACK_COOKIE_CHECK_FAILURE``), as the event viewer's *BEX64* report and WinDbg show it, or a debug build
says ``Stack around the variable 'x' was corrupted``. Nothing else proves it: 0xC0000409 is named
STATUS_STACK_BUFFER_OVERRUN, but is usually an ``abort()``.

How to fix it now
-----------------
Check the local arrays of the named function, and every index and length that is used with them: a loop that runs to
``<=``, ``strcpy``/``sprintf`` of text from outside, ``memcpy`` with the size of the source. AddressSanitizer names
the line of the write itself: rebuild the op with ``-g -fsanitize=address`` and run it once.

How to prevent it
-----------------
``std::array`` and ``std::vector`` with ``.at()``, ``std::span`` instead of pointer and length; ``-Warray-bounds
-Wstringop-overflow``; tests of the op under AddressSanitizer.

What it is often mistaken for
-----------------------------
A stack *overflow*, which is a full stack and ends by SIGSEGV, or on Windows by 0xC00000FD. Heap corruption, which
glibc reports with other messages (``free(): invalid pointer``).

Sources
-------
- https://gcc.gnu.org/onlinedocs/gcc/Instrumentation-Options.html (-fstack-protector)
- https://clang.llvm.org/docs/AddressSanitizer.html
"""

from __future__ import annotations

import re

from necropsy.model import Crash, Evidence, Fix, Frame
from necropsy.predicates import bare_name, calls, died_by, frames_of, instruction_at_fault, quote, says
from necropsy.rule import Finding, Found, Rule, Tried, any_of
from necropsy.rules import musl
from necropsy.rules.culprit import culprit_of, innermost, python_line
from necropsy.rules.python import exit_evidence
from necropsy.rules.sanitizers import access_in, around, culprit_in, kind_of, place_in, sanitizer_report, tool_of
from necropsy.rules.windows_loader import sanitizer_of
from necropsy.rules.wording import sentence, who


def _match(crash: Crash) -> Finding | None:
    return _by_guard(crash) or _by_sanitizer(crash)


def _by_sanitizer(crash: Crash) -> Finding | None:
    """A sanitizer caught the write itself; reads past an array overwrite nothing."""
    found = sanitizer_report(crash, lambda one: kind_of(one).startswith(_LOCAL))
    if found is None or found[0].fields.get("access") != "write":
        return None
    message, confidence = found
    return Finding(
        evidence=(quote(message, f"the report of {tool_of(message)}"), *around(message), *exit_evidence(crash)),
        summary=f"Native code wrote past the end of a local array{place_in(message)}{access_in(message)}.",
        confidence=confidence,
        culprit=culprit_in(message),
        fixes=(Fix(text=f"Check the index or the length of the write{place_in(message)}."),),
        title="A function wrote past the end of a local array",
    )


_LOCAL = ("stack-buffer-overflow", "stack-buffer-underflow", "dynamic-stack-buffer-overflow")


def _by_guard(crash: Crash) -> Finding | None:
    failed = calls(crash, _CHECK, first=12, claim="the check of the guard failed")
    noticed = any_of(
        _cookie(crash),
        says(crash, "stack-smash", claim="the guard behind the local arrays was destroyed"),
        failed,
    )
    # MinGW's library of the stack protector ends the program by the instruction ud2.
    died = died_by(crash, "SIGABRT", "SIGILL") if failed else died_by(crash, "SIGABRT")
    if not died and musl.gave_up(crash) and _is_check(next(iter(frames_of(crash)), None)):
        died = died_by(crash, "SIGSEGV") + instruction_at_fault(crash)
    if not noticed or (crash.fault is not None and not died):
        return None
    culprit = culprit_of(crash, frame=_overrun(crash))
    name = who(culprit)
    return Finding(
        evidence=noticed + died + python_line(crash),
        summary=f"{sentence(name)} wrote past the end of one of its local arrays and destroyed its own stack frame; "
        "it was noticed when the function returned.",
        confidence="certain",
        culprit=culprit,
        fixes=(
            Fix(text=f"Check every index and length used with the local arrays of {name}."),
            Fix(
                text="AddressSanitizer names the line of the write: rebuild the native code with it and run once.",
                command=sanitizer_of(crash),
            ),
        ),
    )


_CHECK = r"__stack_chk_fail\w*|__report_gsfailure"


def _is_check(frame: Frame | None) -> bool:
    return frame is not None and frame.function is not None and bool(re.fullmatch(_CHECK, bare_name(frame.function)))


def _overrun(crash: Crash) -> Frame | None:
    """The caller of the check, whose guard was overwritten; frames above it may be nameless."""
    frames = frames_of(crash)
    for index, frame in enumerate(frames[:12]):
        if _is_check(frame):
            return innermost(frames[index + 1 :])
    return None


def _cookie(crash: Crash) -> Found:
    """Windows: the /GS cookie was destroyed. Other subcodes of 0xC0000409 mean something else."""
    status = crash.exit.ntstatus if crash.exit is not None else None
    if status is None or status.fast_fail is None or status.fast_fail.code not in {0, 2}:
        return ()
    seen = f"{status.value} with subcode {status.fast_fail.code}, {status.fast_fail.name}"
    return (Evidence(claim="the cookie behind the local arrays was destroyed", seen=seen, where="exception record"),)


RULE = Rule(
    _match,
    beats=(
        "abort",
        "killed-by-signal",
        "exit-status-only",
        "sanitizer-report",
        "deliberate-trap",
        "illegal-instruction",
        "null-dereference",
    ),
    tried=Tried(
        advice="Check every index and length used with the local arrays of the named function.",
        result="crash gone",
        how=(
            "The length of the text was compared with the array of 16 bytes in the named function; the "
            "program then ended normally."
        ),
        test="tests/rules/test_advice.py::test_native",
    ),
    hit="""
        signal SIGABRT SI_TKILL
        sent-by itself
        thread 4711 python3 crashed
        stack 8MiB used 20KiB whole main
        frame __pthread_kill_implementation @ libc.so.6 takes 160
        frame raise @ libc.so.6 takes 16
        frame abort @ libc.so.6 takes 160
        frame __libc_message @ libc.so.6 takes 300
        frame __fortify_fail @ libc.so.6 takes 16
        frame __stack_chk_fail @ libc.so.6 takes 16
        frame CopyName(char const*) @ op.so in op.cc:17 takes 64
        log *** stack smashing detected ***: terminated
    """,
    miss="""
        signal SIGABRT SI_TKILL
        sent-by itself
        thread 4711 python3 crashed
        frame abort @ libc.so.6 takes 160
        frame __fortify_fail @ libc.so.6 takes 16
        frame __chk_fail @ libc.so.6 takes 16
        frame __strcpy_chk @ libc.so.6 takes 16
        frame CopyName(char const*) @ op.so in op.cc:17 takes 64
        log *** buffer overflow detected ***: terminated
    """,
)
