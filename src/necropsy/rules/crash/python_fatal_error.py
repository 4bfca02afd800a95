"""The Python interpreter stopped with a fatal error.

What happened
-------------
CPython found its own state broken and called ``Py_FatalError``. It printed ``Fatal Python error: <function>:
<reason>`` and aborted. The cause is nearly always native code that used the C API wrongly. Such code runs without the
GIL, with the state of another thread, after the interpreter's end, or with wrong reference counts.

How to be sure
--------------
The line names a function of CPython and a reason, and the process died by SIGABRT. (``Fatal Python error:
Segmentation fault`` is different: it is faulthandler's heading for an ordinary signal.)

How to fix it now
-----------------
*must be called with the GIL held*: take it with ``PyGILState_Ensure`` (pybind11: ``py::gil_scoped_acquire``) in
native callbacks and threads. Do not mix ``ctypes.PyDLL`` and ``ctypes.CDLL``.

*Cannot recover from stack overflow*: lower the recursion limit.

*deallocating None*, *bad trailing pad byte*: a reference count or a buffer is wrong in an extension. Run with
``PYTHONMALLOC=debug`` and ``python -X dev``.

*finalizing*: a thread outlived the interpreter.

How to prevent it
-----------------
Test extensions under ``python -X dev`` or a debug build of CPython, which finds misuse where it happens.

What it is often mistaken for
-----------------------------
faulthandler's dump of a SIGSEGV, which begins with the same three words.

Sources
-------
- https://docs.python.org/3/c-api/sys.html#c.Py_FatalError
- https://docs.python.org/3/c-api/init.html#thread-state-and-the-global-interpreter-lock
"""

from __future__ import annotations

import re
from itertools import pairwise

from necropsy.model import Crash, Evidence, Fix, Message
from necropsy.predicates import bare_name, calls, frames_of, messages, quote
from necropsy.rule import Finding, Found, Rule, Tried
from necropsy.rules.aborts import aborted, last, may_have_aborted
from necropsy.rules.culprit import culprit_of, python_line
from necropsy.rules.last_words import as_evidence
from necropsy.rules.windows_loader import status_of


def _match(crash: Crash) -> Finding | None:
    message, words = last(crash, "python-fatal")
    died = aborted(crash)
    machinery = calls(crash, r"_?Py_FatalError\w*|fatal_error_exit", first=12, claim="the interpreter ended itself")
    trapped = message is not None and status_of(crash) == _BREAKPOINT
    if not (may_have_aborted(crash) or trapped or _could_not_start(crash, message)) or not (
        message or (died and machinery)
    ):
        return None
    more = tuple(
        quote(one, "the interpreter reports")
        for one in messages(crash, "python-assertion", "python-state", "python-debug-memory")[:3]
    )
    function = message.fields.get("function") if message else None
    by = f" in `{function}`" if function else ""
    reason = message.fields["text"].rstrip(".") if message else "its reason was not seen"
    lock = calls(
        crash,
        _NO_STATE.pattern,
        first=12,
        claim="it needs the state of the thread that holds the GIL, and there is none",
    )
    asked = _asked(crash) if message is None else ()
    lock = lock or tuple(one for one in asked if _OF_THE_LOCK.match(one.seen))
    words += asked
    if message is None and lock:
        words += lock
        reason = "Python was called by a thread that does not hold the GIL"
    elif message is None and crash.last_words is not None:
        words += as_evidence(crash.last_words)
        reason = " ".join(crash.last_words.text.split()).rstrip(".")
    return Finding(
        evidence=words + more + died + machinery + python_line(crash),
        summary=f"The Python interpreter stopped with a fatal error{by}: {reason}.",
        confidence="certain" if died else "likely",
        culprit=culprit_of(crash),
        fixes=(
            _WITHOUT_GIL if message is None and lock else _by_name(crash) or _fix(message),
            Fix(
                text="Run once in development mode, which finds misuse of the C API where it happens.",
                command="python -X dev ...",
            ),
        ),
    )


def _could_not_start(crash: Crash, message: Message | None) -> bool:
    """During start-up, exit code 1 replaces abort() (``fatal_error_exit`` of Python/pylifecycle.c)."""
    end = crash.exit
    if message is None or crash.fault is not None or end is None or end.kind != "exited" or end.code != 1:
        return False
    return any(one.fields["state"].startswith(_STARTING) for one in messages(crash, "python-state"))


_STARTING = ("preinitializ", "core initialized", "preinitialized", "unknown", "initializing")
_BREAKPOINT = 0x80000003
"""A debug build on Windows calls DebugBreak() before it calls abort()."""


def _asked(crash: Crash) -> Found:
    """The CPython function that called the error handling."""
    frames = frames_of(crash)[:16]
    for frame, caller in reversed(tuple(pairwise(frames))):
        if frame.function and _GIVES_UP.fullmatch(bare_name(frame.function)) and caller.function:
            return (Evidence(claim="which function ended it", seen=caller.function, where=f"frame {caller.index}"),)
    return ()


_GIVES_UP = re.compile(r"_?Py_FatalError\w*|fatal_error\w*|_Py_EnsureFuncTstateNotNULL|_Py_CheckFunctionTstate\w*")
_OF_THE_LOCK = re.compile(r"PyEval_(?:Restore|Save|Acquire|Release)Thread|PyThreadState_\w+|PyGILState_Release")


_NO_STATE = re.compile(r"_Py_FatalError_TstateNULL|_Py_EnsureFuncTstateNotNULL|_Py_CheckFunctionTstate\w*")
_WITHOUT_GIL = Fix(
    text="Take the GIL before native code calls Python: PyGILState_Ensure, or py::gil_scoped_acquire with pybind11."
)


def _by_name(crash: Crash) -> Fix | None:
    """Advice if the failing functions' names show what they check."""
    if calls(crash, r"_PyMem_Debug\w+|_PyObject_Debug\w+", first=12, claim="a block is checked"):
        return Fix(
            text="A native extension wrote past a block that Python gave it, or freed it by another API than it came "
            "from: run it under AddressSanitizer."
        )
    if calls(crash, r"_?Py_?(?:Enter|Check)RecursiveCall\w*", first=12, claim="the depth is checked"):
        return Fix(text="Bound the recursion in Python, and do not raise sys.setrecursionlimit.")
    return None


def _fix(message: Message | None) -> Fix:
    text = message.text if message else ""
    if message is not None and message.fields.get("function") in {"init_sys_streams", "init_stdio_encoding"}:
        return Fix(
            text="Python could not use stdin, stdout or stderr: the line below says why (a closed descriptor, a folder, an unknown "
            "encoding). Start it with all three open, and without setting their encoding.",
            command="env -u PYTHONIOENCODING python ... </dev/null",
        )
    if message is not None and message.fields.get("function", "").startswith("init_"):
        return Fix(
            text="Python could not start: it found no standard library, or a setting that it cannot use. Try without "
            "the variables that change where it looks and how it encodes.",
            command="env -u PYTHONHOME -u PYTHONPATH -u PYTHONIOENCODING -u LC_ALL python ...",
        )
    if "GIL" in text or "thread state" in text:
        return _WITHOUT_GIL
    if "stack overflow" in text:
        return Fix(text="Bound the recursion in Python, and do not raise sys.setrecursionlimit.")
    if "pad byte" in text or "bad ID" in text:
        return Fix(text="A native extension wrote past a block that Python gave it: run it under AddressSanitizer.")
    if "deallocating" in text or "refcount" in text.lower():
        return Fix(text="A native extension releases a reference that it does not own: look for an extra Py_DECREF.")
    return Fix(text="Find the extension whose frame is named, and what it does with Python's C API there.")


RULE = Rule(
    _match,
    title="A fatal error of the Python interpreter",
    beats=("abort", "killed-by-signal", "exit-status-only", "python-exception", "deliberate-trap"),
    tried=Tried(
        advice="Take the GIL before native code calls Python.",
        result="crash gone",
        how=(
            "``PyGILState_Ensure`` before the call and ``PyGILState_Release`` after it; the program then "
            "ended normally."
        ),
        test="tests/rules/test_advice_on_threads.py::test_take_the_gil",
    ),
    hit="""
        signal SIGABRT SI_TKILL
        sent-by itself
        thread 4711 python3 crashed
        frame raise @ libc.so.6 takes 16
        frame abort @ libc.so.6 takes 160
        frame fatal_error_exit @ python3.11 takes 32
        frame _Py_FatalErrorFunc @ python3.11 takes 32
        frame PyThreadState_Get @ python3.11 takes 32
        frame callback @ ext.so in ext.c:9 takes 32
        log Fatal Python error: PyThreadState_Get: the function must be called with the GIL held, but the GIL is released
        log Python runtime state: initialized
    """,
    miss="""
        signal SIGABRT SI_TKILL
        sent-by itself
        thread 4711 python3 crashed
        frame abort @ libc.so.6 takes 160
        frame give_up @ ext.so in ext.c:9 takes 32
        log Fatal Python error: Aborted
        log
        log Current thread 0x00007f0000000000 (most recent call first):
        log   File "train.py", line 3 in main
    """,
)
