"""The program ended itself by abort().

What happened
-------------
Native code called ``abort()``, which ends the process by SIGABRT at once. It does so when it cannot continue. No rule
knows why. The report quotes what the program wrote last. If stderr was not read, it quotes what memory still held of
that output. If a known message is found, another rule matches.

How to be sure
--------------
``abort`` is on the stack, or the signal is SIGABRT and the process sent it itself. The output before it decides. A
failed CHECK, ``terminate called``, a heap error and a fatal error of Python have their own verdicts. Here no such
message was seen, or a library printed its own (``LLVM ERROR``, ``This application failed to start because no Qt
platform plugin could be initialized``).

How to fix it now
-----------------
Read the lines that the program printed last. Where stderr was not read, keep it in a file (``2> stderr.txt``). If
nothing was written, read the code of the named function just before it calls ``abort()``.

How to prevent it
-----------------
Do not throw stderr away (``2>/dev/null``, ``TF_CPP_MIN_LOG_LEVEL=3``): the reason is there.

What it is often mistaken for
-----------------------------
A segmentation fault. On Windows an ``abort()`` ends with 0xC0000409, whose name means a stack buffer overrun, or with
exit code 3.

Sources
-------
- https://man7.org/linux/man-pages/man3/abort.3.html
"""

from __future__ import annotations

import re

from necropsy.frame_filter import file_name
from necropsy.model import Crash, Culprit, Evidence, Fix, Message, Possibility
from necropsy.predicates import bare_name, calls, frames_of, messages, says
from necropsy.rule import Finding, Found, Rule, Tried
from necropsy.rules.aborts import abort_text, aborted, may_have_aborted
from necropsy.rules.culprit import culprit_of, python_line
from necropsy.rules.exit_causes import of_signal
from necropsy.rules.last_words import as_evidence, in_a_sentence, last_words, quoted_first
from necropsy.rules.python import ended_by_exception
from necropsy.rules.reporters import TERMINATE, fix_of, reporter
from necropsy.rules.windows_loader import status_of
from necropsy.rules.wording import sentence, short


def _match(crash: Crash) -> Finding | None:
    died = aborted(crash)
    said = _cause_first(messages(crash, "last-words"))
    if not died and not (said and _ends(crash, said[-1])):
        return None
    call = calls(crash, "(?:__GI_)?abort", first=12, claim="abort() was called")
    words = says(crash, "cpp-terminate-bare", "last-words", claim="its last words") + abort_text(crash)
    culprit = culprit_of(crash)
    named = bool(culprit and culprit.function)
    actor = sentence(short(culprit.function)) if culprit and culprit.function else "Native code"
    left = last_words(crash)
    # The words are in the code that gave up, or on its stack: that they are the reason is likely, not seen.
    from_memory = bool(said) and said[-1].where.startswith("memory of")
    by_name, names = reporter(crash) if died and not said else (None, ())
    terminated = _terminated(crash) if died and not said else ()
    joinable = bool(messages(crash, "cpp-terminate-bare") or terminated)
    look = _look(culprit)
    if said:
        actor = actor if named else "A library"
        summary = (
            f"{actor} ended the program by abort() and said why: {said[-1].fields['what'].strip()[:160].rstrip('.')}."
        )
    elif joinable:
        summary = f"{actor} ended the program: std::terminate was called without an exception, as when {_without_one(crash)[0]}."
    elif crash.abort_message:
        summary = f"{actor} ended the program by abort(); the C library's last words are: {crash.abort_message.strip()[:120].rstrip('.')}."
    elif by_name is not None:
        told = in_a_sentence(left) if left is not None else "Its message was not seen."
        summary = f"{sentence(by_name.says)}, and the program was ended by abort(). {told}"
    elif left is not None:
        summary = f"{quoted_first(left)} before {actor[:1].lower() + actor[1:] if not named else actor} called abort()."
    else:
        seen = "it wrote no reason to stderr" if (crash.log_tail or "").strip() else "it wrote nothing to stderr"
        reason = seen if crash.log_tail is not None else "what it wrote before was not seen"
        summary = f"{actor} ended the program by abort(), and {reason}."
    return Finding(
        evidence=died
        + call
        + words
        + terminated
        + names
        + as_evidence(left)
        + _loaded_parts(crash, culprit)
        + python_line(crash),
        summary=summary,
        # With its words unheard, the rivals that go by words were not heard either.
        confidence="certain" if call and crash.messages is not None and not from_memory else "likely",
        culprit=culprit,
        fixes=(_fix_of(said[-1]), *look)
        if said
        else (Fix(text=_without_one(crash)[1]), *look)
        if joinable
        else (fix_of(by_name), *look)
        if by_name is not None
        else (_READ, *look)
        if left is not None
        else (*look, *_unheard(crash, look)),
        # Neither words nor a stack: what abort() mostly is.
        last_words=None if said else left,
        possible=()
        if words or left is not None
        else _of_cudnn(culprit) or (() if call or named else of_signal("SIGABRT")),
    )


def _terminated(crash: Crash) -> Found:
    """Known from the stack; the C++ runtime's message was not read."""
    thrown = r"_*cxa_throw|__cxa_rethrow|std::rethrow_exception|_Unwind_RaiseException|_Unwind_Resume\w*|__gxx_personality\w*"
    if crash.messages is not None or crash.cpp_exception is not None or calls(crash, thrown, first=24, claim="a throw"):
        return ()
    return calls(crash, TERMINATE, first=12, claim="C++ called std::terminate, and nothing was being thrown")


def _without_one(crash: Crash) -> tuple[str, str]:
    """What calls std::terminate without an exception, and what to do about it."""
    if calls(crash, r"_Unwind_ForcedUnwind|__pthread_unwind", claim="a thread was being ended"):
        return (
            "a thread is ended (pthread_exit, pthread_cancel) inside a noexcept function",
            "Let a thread end by returning, instead of pthread_exit, and ask it to end, instead of pthread_cancel.",
        )
    if _of_no_thread(crash):
        return (
            "a destructor or a noexcept function throws",
            "Make sure that no destructor and no noexcept function throws. The program's last output may say what was wrong.",
        )
    return "a running std::thread is destroyed", "Join or detach every std::thread before it is destroyed."


def _of_no_thread(crash: Crash) -> bool:
    """The stack, with inlined functions, shows that no thread object called std::terminate."""
    frames = frames_of(crash)
    at = next((at for at, frame in enumerate(frames) if bare_name(frame.function or "") == "std::terminate"), None)
    callers = frames[at + 1 : at + 4] if at is not None else ()
    if not callers or callers[0].source is None:
        return False
    return not any(re.search(r"thread", f"{one.function} {one.source}") for one in callers)


_MUST_NOT_UNWIND = ("panic in a function that cannot unwind", "panic in a destructor during cleanup")


def _cause_first(said: tuple[Message, ...]) -> tuple[Message, ...]:
    """Drop a Rust panic's message about its own end if it gave the reason before: the last message counts."""
    while len(said) > 1 and said[-1].fields["what"].startswith(_MUST_NOT_UNWIND) and "panicked at" in said[-2].text:
        said = said[:-1]
    return said


def _of_cudnn(culprit: Culprit | None) -> tuple[Possibility, ...]:
    """Why cuDNN for Windows ends a program, if its message is missing: nearly always one of its parts is."""
    if culprit is None or not (culprit.module or "").lower().startswith("cudnn"):
        return ()
    return (
        Possibility(
            cause="A part of cuDNN (such as cudnn_ops_infer64_8.dll) or zlibwapi.dll was not found",
            rule="cuda-library-missing",
            decide="The last lines on stderr name it: Could not load library ..., error code 126",
            command="where cudnn*.dll zlibwapi.dll",
        ),
        Possibility(
            cause="Parts of two versions of cuDNN were loaded",
            rule="cudnn-version-mismatch",
            decide="The error code is 127, or the same file is in several folders",
            command="where cudnn64_8.dll cudnn_ops_infer64_8.dll",
        ),
    )


def _loaded_parts(crash: Crash, culprit: Culprit | None) -> Found:
    """Parts of cuDNN that were loaded when it stopped; the missing one is not among them."""
    if not _of_cudnn(culprit) or crash.modules is None:
        return ()
    parts = [file_name(one.path) for one in crash.modules if file_name(one.path).lower().startswith("cudnn")]
    return (Evidence(claim="the parts of cuDNN that were loaded", seen=", ".join(parts), where="list of modules"),)


_ENDS_BY_CODE = re.compile(
    r"panicked at|^panic: |^fatal error: |Terminating due to java|MPI_Abort\(|internal ABORT - |MPI_INIT failed|^Fatal error: "
)
"""Who writes this mostly ends by an exit code, or goes on: where the end was not seen, it is none by abort()."""
_TCL_PANICS = 0x80000003
"""Tcl_Panic on Windows is a breakpoint instruction."""


def _ends(crash: Crash, said: Message) -> bool:
    """Only this message means that the process ended. A Rust panic does not: in a wheel it becomes a Python exception."""
    if _ENDS_BY_CODE.search(said.text):
        return False
    tcl = "Tcl_" in said.text and status_of(crash) == _TCL_PANICS
    return tcl or (may_have_aborted(crash) and not ended_by_exception(crash))


def _fix_of(said: Message) -> Fix:
    text = said.text
    if "Tcl_AsyncDelete" in text:
        return Fix(
            text="Touch tkinter on the main thread only. With matplotlib, draw without a window: its backend Agg; a garbage collection on another thread is enough to free a figure there.",
            command="MPLBACKEND=Agg python ...",
        )
    if "longjmp causes" in text:
        return Fix(
            text="The function that called setjmp had returned already: jump back only while it is still running, and never from another thread."
        )
    if "%n in writable" in text:
        return Fix(text='Never use text from outside as a format: printf("%s", text).')
    if "or later required" in text:
        return Fix(
            text="This is the Tk of an old macOS: use a Python that brings its own (python.org, Homebrew's python-tk)."
        )
    if "Qt platform plugin" in text:
        return Fix(
            text="Install what the plugin needs (libxcb-cursor0, libxkbcommon-x11-0 ...), give it a display or the plugin offscreen, and keep one copy of Qt: opencv-python brings its own, opencv-python-headless none.",
            command="QT_DEBUG_PLUGINS=1 python ...; QT_QPA_PLATFORM=offscreen python ...",
        )
    if "QThread" in text:
        return Fix(text="Keep a reference to the QThread, and end it by quit() and wait() before it is destroyed.")
    if "QWidget" in text:
        return Fix(text="Make the QApplication before the first widget, and only one.")
    if "ymbol not found" in text:
        return Fix(
            text="The code that was compiled calls a function that no loaded library has: bring llvmlite, numba and the compiler's runtime library to versions that fit.",
            command="pip install -U numba llvmlite",
        )
    return Fix(text="Search for this message: it is the library's own reason.")


def _look(culprit: Culprit | None) -> tuple[Fix, ...]:
    """Where it decided to stop; empty without a known function."""
    if culprit is None or culprit.function is None:
        return ()
    at = f" ({file_name(culprit.source)}:{culprit.line})" if culprit.source and culprit.line else ""
    return (Fix(text=f"Read the code of {short(culprit.function)}{at} just before it calls abort()."),)


def _unheard(crash: Crash, look: tuple[Fix, ...]) -> tuple[Fix, ...]:
    """How to get the missing message; if there was none, only the caller of abort() is known."""
    if crash.log_tail is None:
        return (
            Fix(
                text="Its stderr was not read: keep it in a file, and read its last lines.",
                command="python -u ... 2> stderr.txt",
            ),
        )
    if look:
        return ()
    return (
        Fix(
            text="It wrote no reason, and the function that called abort() has no name here. The libraries on the native stack say where it belongs, and a build with symbols names it."
        ),
    )


_READ = Fix(text="Act on its last words: they give the program's own reason, or name what it did last.")


RULE = Rule(
    _match,
    beats=("exit-status-only", "killed-by-signal", "deliberate-trap"),
    tried=Tried(
        advice=(
            "What the program or its library said last; here: join or detach every std::thread before it is destroyed."
        ),
        result="crash gone",
        how=(
            "The thread was detached before its destructor ran; the program then ended normally. The messages of other libraries have their own advice. A QApplication before the first widget, and a QThread that is kept and waited for, were tried by hand and work."
        ),
        test="tests/rules/test_advice.py::test_native",
    ),
    hit="""
        signal SIGABRT SI_TKILL
        sent-by itself
        thread 4711 python3 crashed
        frame raise @ libc.so.6 takes 16
        frame abort @ libc.so.6 takes 160
        frame give_up(int) @ op.so in op.cc:12 takes 32
    """,
    miss="""
        signal SIGABRT SI_USER
        sent-by 77
        thread 4711 python3 crashed
        frame __poll @ libc.so.6 takes 16
        frame wait_for_work @ op.so takes 160
    """,
)
