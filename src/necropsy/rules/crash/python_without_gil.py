"""Python's C API was used without the GIL.

What happened
-------------
Native code called into CPython from a thread that does not hold the global interpreter lock and has no thread state.
CPython looks for the state of the current thread, finds null, and reads a member of it: a fault at a small address
inside a function such as ``PyErr_Occurred``, ``PyErr_SetString`` or ``_PyObject_New``.

How to be sure
--------------
The fault address is a small offset from null, the innermost function belongs to CPython, and it begins by looking for
the thread state. The caller, named as the culprit, made the call.

How to fix it now
-----------------
Take the lock before the call: ``PyGILState_STATE s = PyGILState_Ensure(); ... PyGILState_Release(s);``, with pybind11
``py::gil_scoped_acquire gil;``. With ctypes, functions that call Python must be loaded by ``ctypes.PyDLL``, not
``ctypes.CDLL``, which releases the lock. In a TensorFlow kernel, do not call Python at all: kernels run on
TensorFlow's own threads. ``tf.py_function`` does it for you.

How to prevent it
-----------------
Release the lock only around code that does not use Python. Run extensions under ``python -X dev`` or a debug build.

What it is often mistaken for
-----------------------------
A null pointer of your own; a bug in CPython. If a C++ exception was in flight, that exception is the cause: turning
it into a Python exception is what needed the lock.

Sources
-------
- https://docs.python.org/3/c-api/init.html#non-python-created-threads
- https://docs.python.org/3/library/ctypes.html#ctypes.PyDLL
"""

from __future__ import annotations

from necropsy.frame_filter import is_interpreter, outside_of_python
from necropsy.lazy_re import regex
from necropsy.model import CppException, Crash, Evidence, Fix, Frame, Proposal
from necropsy.predicates import NEAR_NULL, bare_name, calls, died_by, faulted_at, frames_of, messages, quote
from necropsy.rule import Finding, Found, Rule, Tried
from necropsy.rules.aborts import aborted
from necropsy.rules.culprit import culprit_of, python_line
from necropsy.rules.pointers import bad_access, evidence, near_null
from necropsy.rules.shutdown import after_python, of_ending
from necropsy.rules.wording import sentence, short, who

# Functions of CPython 3.8 to 3.14 that look at the thread's state before anything else.
_ALWAYS = regex(
    r"_?PyErr_\w+|_?PyThreadState_\w+|PyEval_(?:Save|Restore|Acquire|Release|Get)\w+|PyGILState_Release|_?Py_EnterRecursiveCall|tstate_\w+"
)
# Those that come to it sooner or later, and before that to their arguments: only on a thread that runs no Python.
_LATER = regex(
    r"PyEval_\w+|_PyEval_\w+|_?PyObject_\w+|PyType_Generic\w+|PyImport_\w+|PyRun_\w+|_?PyMem_\w+|new_threadstate|"
    r"Py(?:List|Tuple|Dict|Long|Float|Unicode|Bytes)_\w+|_?Py(?:List|Tuple|Dict|Long|Float|Unicode|Bytes)_\w+|gc_\w+"
)
_TYPE = 8
"""Offset of ``ob_type``: a fault there is an object that is null, not a thread state."""
FIRST = 6
_TRANSLATION = r"(?:pybind11|nanobind)::.*(?:translate_\w*exception|default_exception_translator|raise_err|handle_nested_exception)"
_TOO_LARGE = {"std::bad_alloc", "std::bad_array_new_length", "std::length_error"}


def _match(crash: Crash) -> Finding | None:
    return _by_words(crash) or _by_fault(crash)


def _by_words(crash: Crash) -> Finding | None:
    """pybind11 checks for the lock and throws, mostly where nothing can catch it."""
    said = messages(crash, "gil-not-held")
    died = aborted(crash)
    if not said or not died:
        return None
    culprit = culprit_of(crash)
    call = said[-1].fields["call"]
    return Finding(
        evidence=(*died, quote(said[-1], "it was seen that the lock is not held"), *python_line(crash)),
        summary=f"{sentence(who(culprit))} called `{call}` without holding the GIL.",
        confidence="likely",
        culprit=culprit,
        fixes=(
            Fix(
                text="Where the lock is released (py::gil_scoped_release, a call_guard, a thread that you start), use no Python object, and let none be destroyed there; or take the lock again: py::gil_scoped_acquire."
            ),
        ),
    )


def _by_fault(crash: Crash) -> Finding | None:
    access = bad_access(crash)
    if access is None or not near_null(access):
        return None
    thread = crash.crashed_thread
    # A thread that has no Python frames at all is the plain sign; but ctypes releases the lock on threads of Python's.
    no_python = thread is not None and thread.python == ()
    inside = None
    for frame in frames_of(crash)[:FIRST]:
        name = bare_name(frame.function) if frame.function else ""
        needs = _ALWAYS.fullmatch(name) or (no_python and access.address != _TYPE and _LATER.fullmatch(name))
        if needs:
            inside = frame
        elif not is_interpreter(frame):
            break
    if inside is None:
        return None
    culprit = culprit_of(crash, frame=_caller(crash))
    name = who(culprit)
    thrown = crash.cpp_exception if _translates(crash) else None
    found: Found = (
        Evidence(
            claim="a function of CPython that needs the thread's state faulted next to null",
            seen=inside.function or "?",
            where=f"frame {inside.index}",
        ),
    )
    if no_python:
        found += (
            Evidence(
                claim="the thread runs no Python code",
                seen="no Python frames",
                where=f"thread {thread.tid if thread else '?'}",
            ),
        )
    if thrown is not None:
        found += (Evidence(claim="the C++ exception that becomes Python's", seen=_spell(thrown), where=thrown.where),)
    asked = short(inside.function)
    ended = after_python(crash)
    if ended:
        return Finding(
            evidence=(*died_by(crash, "SIGSEGV"), *ended, *found, *evidence(crash, access)),
            summary=f"Python's {asked} was called at the program's end, after Python itself had ended.",
            confidence="likely",
            fixes=_AT_THE_END,
            title="Python was called after it had ended",
        )
    return Finding(
        evidence=(
            *died_by(crash, "SIGSEGV"),
            *faulted_at(crash, 0, NEAR_NULL, "the address is a small offset from null"),
            *found,
            *evidence(crash, access),
            *python_line(crash),
        ),
        summary=(
            f"{sentence(name)} called Python's {asked} on a thread that does not hold the GIL and has no Python thread state."
            if thrown is None
            else f"A C++ exception, {_spell(thrown)}{_by(crash)}, had to become a Python exception, and {name} called {asked} for that "
            "without holding the GIL."
        ),
        confidence="certain" if _is_sure(inside) else "likely",
        culprit=culprit,
        fixes=(
            *_fixes(thrown),
            Fix(
                text=f"In {name}, take the GIL before the call: PyGILState_Ensure, or py::gil_scoped_acquire with pybind11."
            ),
            Fix(
                text="From ctypes, load a library whose functions use Python's C API with ctypes.PyDLL instead of ctypes.CDLL."
            ),
        ),
    )


_AT_THE_END = (
    Fix(
        text="Unregister what would be called at the end (a callback, a function of atexit, what a static object's "
        "destructor calls) while Python still runs: in a function that you pass to Python's atexit.register.",
    ),
    Fix(text="In native code that may run then, ask Py_IsInitialized() first, and do nothing where it says 0."),
)


def _experiments(crash: Crash) -> tuple[Proposal, ...]:
    return of_ending(crash, proves=bool(after_python(crash)))


def _caller(crash: Crash) -> Frame | None:
    """The innermost function outside Python, up to the calling Python code."""
    return next((one for one in outside_of_python(frames_of(crash)) if not is_interpreter(one)), None)


def _is_sure(frame: Frame) -> bool:
    """``PyErr_Occurred`` only reads the thread's state, so a fault near null can be nothing else."""
    return bare_name(frame.function or "") == "PyErr_Occurred"


def _translates(crash: Crash) -> bool:
    return bool(calls(crash, _TRANSLATION, first=12, claim="an exception is translated"))


def _spell(thrown: CppException) -> str:
    what = f' ("{thrown.what}")' if thrown.what and thrown.what != thrown.type else ""
    return f"`{thrown.type or 'of unknown type'}`{what}"


def _by(crash: Crash) -> str:
    op = crash.operation.op if crash.operation else None
    return f" out of the op {op}" if op else ""


def _fixes(thrown: CppException | None) -> tuple[Fix, ...]:
    if thrown is None:
        return ()
    if thrown.type in _TOO_LARGE:
        text = (
            "More was requested than can be allocated: check this line of Python for an absurdly large size or shape."
        )
        return (Fix(text=text),)
    return (Fix(text="The exception is the cause: check in Python, before the call, what makes it throw."),)


RULE = Rule(
    _match,
    needs=("fault", "frames"),
    experiments=_experiments,
    beats=(
        *("null-dereference", "invalid-read", "heap-corruption", "damaged-object", "interpreter-bug"),
        "abort",
    ),
    tried=Tried(
        advice="In the named function, take the GIL before the call.",
        result="crash gone",
        how=(
            "``PyGILState_Ensure`` before the call and ``PyGILState_Release`` after it; the program then "
            "ended normally. Not in what runs after the interpreter's end: there, ``if (!Py_IsInitialized()) "
            "return;``."
        ),
        test="tests/rules/test_advice_on_threads.py::test_take_the_gil",
    ),
    hit="""
        signal SIGSEGV SEGV_MAPERR 0x60 read
        at 0x555500001000 mov rax, qword ptr [rax + 0x60]
        operand read [rax + 0x60] = 0x60 size 8 rax=0x0
        thread 4712 worker crashed
        stack 8MiB used 20KiB whole
        frame PyErr_Occurred @ python3.11 takes 16
        frame PyLong_FromLong @ python3.11 takes 32
        frame on_progress(int) @ ext.so in ext.cc:31 takes 32
        frame start_thread @ libc.so.6 takes 160
        python none
    """,
    miss="""
        signal SIGSEGV SEGV_MAPERR 0x8 read
        at 0x7f0000001000 mov rax, qword ptr [rdi + 8]
        operand read [rdi + 8] = 0x8 size 8 rdi=0x0
        thread 4711 python3 crashed
        stack 8MiB used 20KiB whole main
        frame first_type(_object*) @ ext.so in ext.cc:31 takes 32
        frame cfunction_call @ python3.11 takes 32
        python main train.py:3
    """,
)
