"""The program called the function that ended it: os.abort(), os.kill(), signal.raise_signal(), faulthandler._sigsegv().

What happened
-------------
A line of Python ended the process. ``os.abort()`` calls C's ``abort()``. ``signal.raise_signal`` and ``os.kill`` with
the process's own id send it a signal. The functions of ``faulthandler`` whose names begin with an underscore crash on
purpose, for tests.

How to be sure
--------------
CPython's function for that call is on the native stack, and between it and the signal there is nothing but the C
library.

How to fix it now
-----------------
The reason is in the named line and in the condition above it. Nothing is wrong in CPython or in the C library. To see
how the program got there, replace the call by ``raise RuntimeError("...")``, which prints a traceback.

How to prevent it
-----------------
Raise an exception, or call ``sys.exit`` with a message. If the process must end at once, print the reason first.

What it is often mistaken for
-----------------------------
A crash of the interpreter: the stack shows CPython's own functions directly above ``abort`` or ``raise``.

Sources
-------
- https://docs.python.org/3/library/os.html#os.abort
- https://docs.python.org/3/library/signal.html#signal.raise_signal
"""

from __future__ import annotations

from necropsy.frame_filter import is_interpreter, noise_of_module
from necropsy.lazy_re import regex
from necropsy.model import Crash, Evidence, Fix, Frame
from necropsy.predicates import bare_name, died_by, frames_of, sent_by_another, signal_of
from necropsy.rule import Finding, Rule, Tried
from necropsy.rules.culprit import culprit_of, python_line, python_place, spell

_CALLS = (
    ("os.abort()", regex(r"os_abort(?:_impl)?")),
    ("signal.raise_signal()", regex(r"signal_raise_signal(?:_impl)?")),
    ("os.kill() with its own process id", regex(r"os_kill(?:_impl)?")),
    ("os.killpg() with its own process group", regex(r"os_killpg(?:_impl)?")),
    ("signal.pthread_kill()", regex(r"signal_pthread_kill(?:_impl)?")),
    ("faulthandler._read_null()", regex(r"faulthandler_read_null(?:_impl)?")),
    ("faulthandler._sigsegv()", regex(r"faulthandler_(?:raise_)?sigsegv(?:_impl)?")),
    ("faulthandler._sigabrt()", regex(r"faulthandler_sigabrt(?:_py|_impl)*")),
    ("faulthandler._sigfpe()", regex(r"faulthandler_(?:raise_)?sigfpe(?:_impl)?")),
    ("faulthandler._stack_overflow()", regex(r"faulthandler_stack_overflow(?:_impl)?")),
    ("faulthandler._fatal_error_c_thread()", regex(r"faulthandler_fatal_error_(?:c_thread|thread)(?:_impl)?")),
)
"""How Python spells the call, and the C functions behind it (Modules/posixmodule.c, signalmodule.c, faulthandler.c)."""
_NEAR = 12


def _call(crash: Crash) -> tuple[str, Frame] | None:
    """Above it, only the C library and other frames of the same call may be."""
    for frame in frames_of(crash)[:_NEAR]:
        name = bare_name(frame.function) if frame.function else ""
        # In a package's extension a function of that name is its author's.
        if frame.module is None or noise_of_module(frame) or is_interpreter(frame):
            for said, pattern in _CALLS:
                if pattern.fullmatch(name):
                    return said, frame
        if not noise_of_module(frame) or is_interpreter(frame):
            return None
    return None


_SPELLED = (
    ("os.abort()", regex(r"\babort\(\)")),
    ("signal.raise_signal()", regex(r"\braise_signal\(")),
    ("os.kill() with its own process id", regex(r"\bkill\(\s*(?:os\.)?getpid\(\)")),
    ("os.killpg() with its own process group", regex(r"\bkillpg\(\s*(?:os\.)?getpg")),
    ("faulthandler._sigsegv()", regex(r"\bfaulthandler\._sigsegv\(")),
    ("faulthandler._sigabrt()", regex(r"\bfaulthandler\._sigabrt\(")),
)
"""The same calls in a line of Python."""


def _call_of_the_line(crash: Crash) -> tuple[str, Frame, Evidence] | None:
    """The call in the Python line, if a nameless CPython function called the C library."""
    frame = next((one for one in frames_of(crash)[:_NEAR] if is_interpreter(one) or not noise_of_module(one)), None)
    thread = crash.crashed_thread
    line = next(iter((thread.python if thread is not None else None) or ()), None)
    if frame is None or frame.function is not None or not is_interpreter(frame) or line is None or line.code is None:
        return None
    ran = line.code[slice(*line.columns)] if line.columns is not None else line.code
    said = next((call for call, pattern in _SPELLED if pattern.search(ran)), None)
    if said is None:
        return None
    return said, frame, Evidence(claim="the line of Python that ran", seen=ran, where=f"{line.source}:{line.line}")


def _match(crash: Crash) -> Finding | None:
    found, signal = _call(crash), signal_of(crash)
    if signal is None or sent_by_another(crash):
        return None
    if found is not None:
        said, frame = found
        seen = Evidence(
            claim=f"CPython's function for {said}", seen=frame.function or "?", where=f"frame {frame.index}"
        )
    elif (by_line := _call_of_the_line(crash)) is not None:
        said, frame, seen = by_line
    else:
        return None
    place, _ = python_place(crash)
    at = f" at {spell(place)}" if place is not None else ""
    return Finding(
        evidence=(*died_by(crash, signal), seen, *python_line(crash)),
        summary=f"The program called {said}{at}, which ended it by {signal}.",
        confidence="certain" if found is not None else "likely",
        culprit=culprit_of(crash, frame=frame),
        fixes=(
            Fix(
                text=f"Look at {spell(place) if place is not None else 'the line of Python that made this call'}: the condition before this call is the reason."
            ),
        ),
    )


RULE = Rule(
    _match,
    title="The program called the function that ended it",
    needs=("frames",),
    beats=(
        *("abort", "killed-by-signal", "exit-status-only", "null-dereference", "integer-divide-by-zero"),
        *("python-fatal-error", "stack-overflow-recursion", "stack-overflow-small-stack", "stack-overflow-large-frame"),
    ),
    tried=Tried(
        advice="Look at the named line: the condition before this call is the reason.",
        result="crash gone",
        how="The condition before the named ``os.abort()`` was met; the program then ended normally.",
        test="tests/rules/test_advice.py::test_ended_by_its_own_call",
    ),
    hit="""
        signal SIGABRT SI_TKILL
        sent-by itself
        thread 4711 python3 crashed
        frame raise @ libc.so.6 takes 16
        frame abort @ libc.so.6 takes 160
        frame os_abort_impl @ python3.11 takes 16
        frame cfunction_vectorcall_NOARGS @ python3.11 takes 32
        python check train.py:12
    """,
    miss="""
        signal SIGABRT SI_TKILL
        sent-by itself
        thread 4711 python3 crashed
        frame raise @ libc.so.6 takes 16
        frame abort @ libc.so.6 takes 160
        frame give_up(int) @ op.so in op.cc:12 takes 32
        frame os_abort_impl @ python3.11 takes 16
        python check train.py:12
    """,
)
