"""The C library caught a write past the end of a buffer.

What happened
-------------
The program was compiled with ``_FORTIFY_SOURCE``: calls such as ``strcpy``, ``memcpy``, ``sprintf`` and ``read`` then know how
large their destination is, as far as the compiler knew it. One of them was asked to write more than that, and the C
library ended the program by SIGABRT *before* it wrote. So nothing is destroyed yet, and the stack shows the guilty call.

How to be sure
--------------
``*** buffer overflow detected ***`` in the log, or ``__chk_fail`` and a function whose name ends in ``_chk`` on the stack. The
function under them made the call.

How to fix it now
-----------------
Compare the length that is copied with the size of the destination in the named function. ``snprintf``, ``std::string`` or
``std::vector`` take the size along. ``FD_SET`` with a file descriptor of 1024 or more gives the same message: use ``poll``.

How to prevent it
-----------------
Keep ``-D_FORTIFY_SOURCE=3 -O2`` on: it found this before it did harm. Add ``-Wstringop-overflow``.

What it is often mistaken for
-----------------------------
``stack smashing detected``: there the write has happened already. Heap corruption: there the bookkeeping of ``malloc`` was
found destroyed, at another time and place.

Sources
-------
- https://sourceware.org/glibc/manual/latest/html_node/Source-Fortification.html
- https://man7.org/linux/man-pages/man7/feature_test_macros.7.html (_FORTIFY_SOURCE)
"""

from __future__ import annotations

from necropsy.model import Crash, Fix
from necropsy.predicates import calls, died_by, messages, says
from necropsy.rule import NEVER, Finding, Occurs, Rule, Tried, any_of
from necropsy.rules.culprit import culprit_of, python_line
from necropsy.rules.wording import sentence, who


def _match(crash: Crash) -> Finding | None:
    call = calls(
        crash,
        r"__(?!stack|longjmp|____longjmp)\w+_chk|__chk_fail",
        first=12,
        claim="a checked function of the C library refused",
    )
    noticed = any_of(says(crash, "fortify", claim="the C library refused to write past a buffer's end"), call)
    died = died_by(crash, "SIGABRT")
    if not noticed or (crash.fault is not None and not died):
        return None
    culprit = culprit_of(crash)
    name = who(culprit)
    said = messages(crash, "fortify")
    if not said and messages(crash, "last-words"):
        return None  # checked functions refuse more than a write past a buffer
    other = said[-1].fields.get("what") if said else None
    what = (
        f"the C library found: {other}" if other and other != "buffer overflow detected" else "the C library stopped it"
    )
    return Finding(
        evidence=noticed + died + python_line(crash),
        summary=f"{sentence(name)} asked to write more into a buffer than it holds, and {what} before anything was written.",
        confidence="certain" if died else "likely",
        culprit=culprit,
        fixes=(Fix(text=f"In {name}, compare the length that is written with the size of the destination."),),
    )


RULE = Rule(
    _match,
    title="A write past a buffer's end, caught by the C library",
    beats=("abort", "killed-by-signal"),
    occurs=Occurs(windows=NEVER),
    tried=Tried(
        advice="In the named function, compare the length that is written with the size of the destination.",
        result="crash gone",
        how=(
            "The length was compared with the size of the destination in the named function; the program then "
            "ended normally."
        ),
        test="tests/rules/test_advice.py::test_native",
    ),
    hit="""
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
    miss="""
        signal SIGABRT SI_TKILL
        sent-by itself
        thread 4711 python3 crashed
        frame abort @ libc.so.6 takes 160
        frame __fortify_fail @ libc.so.6 takes 16
        frame __stack_chk_fail @ libc.so.6 takes 16
        frame CopyName(char const*) @ op.so in op.cc:17 takes 64
        log *** stack smashing detected ***: terminated
    """,
)
