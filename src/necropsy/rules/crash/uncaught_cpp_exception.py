"""An uncaught C++ exception.

What happened
-------------
C++ code threw an exception and no caller caught it. Or it was thrown where exceptions must not leave: from a
destructor, a ``noexcept`` function, a thread's start function, or through C code such as ctypes. C++ then calls
``std::terminate``, which aborts. The stack is not unwound: Python's ``except`` cannot help.

How to be sure
--------------
The log says ``terminate called after throwing an instance of ...``, or the exception's type was found in the memory
of the thread that died. The stack still shows where it was thrown: the frame below ``__cxa_throw``, or below
``std::__throw_...`` of the standard library. On Windows, a process that ends with 0xE06D7363 (-529697949, Microsoft's
compiler) or 0x20474343 (GCC) was ended by a C++ exception. Its type is in the exception record, which a minidump
holds and a debugger shows. More often such a process ends with 0xC0000409, subcode 7, as after any ``abort()``.

How to fix it now
-----------------
The type says what failed: ``std::out_of_range`` an index, ``std::bad_alloc`` memory, ``std::length_error`` an
impossible size, ``std::system_error`` a thread or a file that the system refused. Fix that in the named function, or
catch it there and turn it into an error. In a TensorFlow kernel, use ``OP_REQUIRES(ctx, false,
errors::Internal(e.what()))``, in an ``extern "C"`` function, a return code.

How to prevent it
-----------------
No exception may cross ``extern "C"``, a thread's start function, or a TensorFlow kernel: put ``try``/``catch`` at
that border. pybind11 translates exceptions into Python's, ctypes does not.

What it is often mistaken for
-----------------------------
A failed CHECK (it prints another line), or *CPython entered without a thread state*: translating the exception on a
thread without the GIL crashes too, and is a consequence.

Sources
-------
- https://en.cppreference.com/w/cpp/error/terminate
- https://itanium-cxx-abi.github.io/cxx-abi/abi-eh.html
"""

from __future__ import annotations

from necropsy.model import Crash, Evidence, Fix, Frame, Message
from necropsy.predicates import bare_name, calls, frames_of, messages, quote, says
from necropsy.rule import Finding, Found, Rule, Tried, any_of
from necropsy.rules.aborts import CPP_EXCEPTIONS, aborted, last, may_have_aborted
from necropsy.rules.culprit import culprit_of, innermost, nameless, python_line
from necropsy.rules.exit_causes import of_status
from necropsy.rules.reporters import TERMINATE, UNWINDER_TERMINATES
from necropsy.rules.wording import sentence, who

_HINTS = {
    "std::bad_alloc": "no memory could be allocated: check the requested size",
    "std::out_of_range": "an index or key was out of range: check it before the call",
    "std::length_error": "an impossible size was requested for a container: look for a negative number turned unsigned",
    "std::system_error": "the operating system refused, often one more thread: see the message (on Linux also `ulimit -u`)",
    "std::bad_function_call": "an empty std::function was called",
    "std::bad_cast": "an object was not of the type that a cast expected",
    "std::bad_variant_access": "a std::variant held another type",
    "std::bad_optional_access": "an empty std::optional was read",
}


def _match(crash: Crash) -> Finding | None:
    message, words = _said(crash)
    exception = crash.cpp_exception
    kind = (message.fields.get("type") if message else None) or (exception.type if exception else None)
    on_windows = _thrown_on_windows(crash)
    if not may_have_aborted(crash) and not _in_translation(crash) and not on_windows:
        return None
    in_memory: Found = ()
    if exception is not None and exception.type:
        seen = exception.type + (f": {exception.what}" if exception.what else "")
        in_memory = (Evidence(claim="the exception that was thrown", seen=seen, where=exception.where),)
    machinery = any_of(
        calls(
            crash,
            r"__cxa_throw|__cxa_rethrow|std::rethrow_exception|_?CxxThrowException|_?RaiseException",
            claim="a C++ exception was being thrown",
        ),
        calls(
            crash,
            TERMINATE,
            first=16,
            claim="C++ called std::terminate",
        ),
    )
    died = aborted(crash)
    if died and crash.fault is not None and kind is not None:  # the end of a thread unwinds without any
        machinery += calls(
            crash,
            UNWINDER_TERMINATES,
            first=16,
            claim="the search for a handler ended at a function that lets no exception through",
        )
    # An exception object in memory alone may be an old one that was caught.
    seen_thrown = _recorded(crash) and bool(aborted(crash) or may_have_aborted(crash))
    if message is None and not on_windows and not seen_thrown and not (machinery and (kind or len(machinery) == 2)):
        return None
    if kind is None and (again := _rethrew_nothing(crash)):
        return Finding(
            evidence=again + machinery + died + python_line(crash),
            summary=f"{sentence(who(culprit_of(crash, frame=_thrower(crash))))} rethrew the current exception (`throw;`) "
            "while there was none, and C++ ended the program.",
            confidence="certain" if died else "likely",
            culprit=culprit_of(crash, frame=_thrower(crash)),
            title="`throw;` where no exception is being handled",
            fixes=(
                Fix(
                    text="Write `throw;` only in a catch block, or in a function that is called from one; "
                    "std::current_exception() says whether there is one.",
                ),
            ),
        )
    what = (message.fields.get("what") if message else None) or (exception.what if exception else None)
    culprit = culprit_of(crash, frame=_thrower(crash))
    by = f" by {who(culprit)}" if culprit and (culprit.function or culprit.module) else ""
    saying = f' with the text "{what}"' if what else ""
    return Finding(
        evidence=words + in_memory + on_windows + machinery + died + python_line(crash),
        summary=f"A C++ exception {f'`{kind}`' if kind else 'of unknown type'}{saying} was thrown{by} and not caught.",
        # A throw that was seen as it happened may have been caught, where nothing on the stack tells of it.
        confidence="certain"
        if (message is not None and died) or (died and kind and machinery) or on_windows
        else "likely",
        culprit=culprit,
        fixes=(
            Fix(text=_sentence_of(kind)),
            Fix(
                text='Catch it where C++ is called from C or from the framework, and return an error: OP_REQUIRES in a kernel, a return code in extern "C".'
            ),
        ),
        possible=of_status(_THROWN) if on_windows and not kind and not machinery else (),
    )


def _rethrew_nothing(crash: Crash) -> Found:
    """``__cxa_rethrow`` called ``std::terminate``, and the runtime reports no active exception."""
    frames = [bare_name(frame.function) for frame in frames_of(crash)[:_GIVING_UP] if frame.function]
    if "__cxa_rethrow" not in frames or not messages(crash, "cpp-terminate-bare"):
        return ()
    at = frames.index("__cxa_rethrow")
    if not at or frames[at - 1] != "std::terminate":
        return ()
    return says(crash, "cpp-terminate-bare", claim="its last words")


_GIVING_UP = 16
"""Frames in which a program gives up."""
_THROWN = 0xE06D7363
_RECORD = "exception record"
"""Where a debugger or a dump of Windows has the exception from: the record of the throw itself."""


def _said(crash: Crash) -> tuple[Message | None, Found]:
    """The runtime's last message, or an equivalent one just before it with the exception's text."""
    message, words = last(crash, "cpp-terminate")
    if message is None or message.fields.get("what") or message.line is None:
        return message, words
    for one in reversed(messages(crash, "cpp-terminate")):
        if one.fields.get("what") and one.line is not None and 0 < message.line - one.line <= _ECHO:
            return one, (quote(one, "its last words"), *words)
    return message, words


_ECHO = 40
"""Lines between Objective-C's words on an exception and C++'s, among them the stack of the throw."""


def _thrown_on_windows(crash: Crash) -> Found:
    """An exception of ``throw`` that ends a process was not caught."""
    status = crash.exit.ntstatus if crash.exit is not None else None
    if status is None or int(status.value, 16) not in CPP_EXCEPTIONS:
        return ()
    seen = f"{status.value} ({status.signed})"
    where = _RECORD if crash.crashed_thread is not None else "exit status"
    return (Evidence(claim="the process ended by a C++ exception", seen=seen, where=where),)


def _recorded(crash: Crash) -> bool:
    """The throw was observed on the thread that then ended the process."""
    return crash.cpp_exception is not None and _RECORD in crash.cpp_exception.where


def _sentence_of(kind: str | None) -> str:
    hint = _HINTS.get((kind or "").replace("std::__1::", "std::").replace("std::__cxx11::", "std::"))
    return (
        f"{(kind or 'The exception')}: {hint}."
        if hint
        else "Read the exception's text, and fix its cause where it is thrown."
    )


def _thrower(crash: Crash) -> Frame | None:
    """The innermost relevant frame below the throw; None without a throw on the stack."""
    frames = frames_of(crash)
    for index, frame in enumerate(frames):
        if frame.function and bare_name(frame.function) in {
            "__cxa_throw",
            "__cxa_rethrow",
            "_CxxThrowException",
            "CxxThrowException",
            "_Unwind_RaiseException",
            "RaiseException",
        }:
            return nameless(frames[index + 1 :]) or innermost(frames[index + 1 :])
    return None


def _in_translation(crash: Crash) -> bool:
    """A crash during exception handling: the translator entered CPython without the GIL."""
    return bool(
        crash.cpp_exception
        and calls(
            crash, r".*translate_exception.*|__cxa_throw|.*PyErr_\w+", first=16, claim="an exception is translated"
        )
    )


RULE = Rule(
    _match,
    beats=("abort", "killed-by-signal", "exit-status-only", "python-without-gil", "null-dereference"),
    tried=Tried(
        advice="Fix what the exception's type names; for std::out_of_range, check the index before the call.",
        result="crash gone",
        how="The size was compared with the index before ``at()``; the program then ended normally.",
        test="tests/rules/test_advice.py::test_native",
    ),
    hit="""
        signal SIGABRT SI_TKILL
        sent-by itself
        thread 4711 python3 crashed
        frame raise @ libc.so.6 takes 16
        frame abort @ libc.so.6 takes 160
        frame __gnu_cxx::__verbose_terminate_handler() @ libstdc++.so.6 takes 32
        frame std::terminate() @ libstdc++.so.6 takes 32
        frame __cxa_throw @ libstdc++.so.6 takes 32
        frame std::__throw_out_of_range_fmt(char const*, ...) @ libstdc++.so.6 takes 32
        frame Pick(std::vector<int> const&, int) @ op.so in op.cc:22 takes 64
        log terminate called after throwing an instance of 'std::out_of_range'
        log   what():  vector::_M_range_check: __n (which is 7) >= this->size() (which is 3)
    """,
    miss="""
        signal SIGABRT SI_TKILL
        sent-by itself
        thread 4711 python3 crashed
        frame raise @ libc.so.6 takes 16
        frame abort @ libc.so.6 takes 160
        frame __gnu_cxx::__verbose_terminate_handler() @ libstdc++.so.6 takes 32
        frame std::terminate() @ libstdc++.so.6 takes 32
        frame std::thread::~thread() @ op.so takes 32
        log terminate called without an active exception
    """,
)
