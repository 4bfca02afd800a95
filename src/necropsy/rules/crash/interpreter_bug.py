"""CPython itself died, and no other native code was there.

What happened
-------------
A function of CPython used an object that was no longer valid, and no extension and no ctypes was loaded that could
have damaged it. Pure Python cannot do that by contract. So this is a bug of that version of CPython, reached from the
named line of Python. Known ways are an object that ``gc.get_referrers`` or ``gc.get_objects`` returns while it is
still being created, and a finalizer or a comparison that changes a container in use. Others are a namespace that is
torn down while its code runs, and a code object that the program made itself.

How to be sure
--------------
All native code that was mapped belongs to the interpreter or to the system, and the function that died is CPython's.
The instruction that failed shows where it ended, not how it began. The same few lines with another version of CPython
say whether it is fixed.

How to fix it now
-----------------
Avoid what the named line does, or use a newer release of CPython. Cut the program down to a few lines. Check
CPython's tracker for a known report, and report it if there is none. ``python -X dev`` on a debug build of CPython
(``./configure --with-pydebug``) stops at the assertion that fails first.

How to prevent it
-----------------
Do not change objects that the ``gc`` module returns. No finalizer (``__del__``, a weak reference's callback) should
change a container that other code iterates over.

What it is often mistaken for
-----------------------------
A null pointer. An extension's fault (rule damaged-object): where one is loaded, it is the more likely cause.

Sources
-------
- https://github.com/python/cpython/tree/main/Lib/test/crashers
- https://docs.python.org/3/library/gc.html#gc.get_referrers
"""

from __future__ import annotations

from necropsy.frame_filter import is_loop
from necropsy.model import Crash, Culprit, Evidence, Fix, Frame
from necropsy.predicates import bare_name, died_by
from necropsy.rule import Finding, Rule, Tried
from necropsy.rules.culprit import python_line, python_place, spell
from necropsy.rules.machinery import of_python, only_the_interpreter, where_it_died
from necropsy.rules.pointers import bad_access, evidence


def _match(crash: Crash) -> Finding | None:
    found = of_python(crash)
    if found is None or not only_the_interpreter(crash):
        return None
    access = bad_access(crash)
    place, _ = python_place(crash)
    name = f"`{bare_name(found.frame.function)}`" if found.frame.function else "code"
    version = crash.environment.python if crash.environment is not None else None
    python = f"CPython {version}" if version else "this version of CPython"
    reached = f", reached from {spell(place)}" if place is not None else ""
    return Finding(
        evidence=(
            *died_by(crash, "SIGSEGV", "SIGBUS"),
            *where_it_died(found),
            *(evidence(crash, access) if access is not None else ()),
            Evidence(
                claim="no other native code was loaded that could have damaged an object",
                seen="no extension, no ctypes, no cffi: the interpreter and the system's libraries only",
                where="list of modules",
            ),
            *python_line(crash),
        ),
        summary=f"Python's own {name} died, and no native extension was loaded: a bug of {python} itself{reached}.",
        confidence="likely",
        culprit=Culprit(python=place) if place is not None else None,
        fixes=(
            *_avoid(found.frame, spell(place) if place is not None else None),
            Fix(text=f"Try a newer release than {python}; if that crashes too, report these lines of Python."),
        ),
    )


def _avoid(frame: Frame, place: str | None) -> tuple[Fix, ...]:
    """What to avoid; if the interpreter loop crashed, the executed code may have been wrong."""
    advice = "do not change a container in use, do not clear a namespace whose code runs, and do not change an object that the gc module returned."
    text = f"Replace what {place} does: {advice}" if place is not None else advice[0].upper() + advice[1:]
    if not is_loop(frame):
        return (Fix(text=text),)
    own = "If it makes code objects itself (code.replace, types.CodeType, a tool that rewrites bytecode), look there first: CPython does not check them."
    return Fix(text=own), Fix(text=f"Otherwise: {text[0].lower()}{text[1:]}")


RULE = Rule(
    _match,
    title="CPython itself died",
    needs=("fault", "frames", "modules"),
    beats=("null-dereference", "invalid-read", "invalid-write", "bad-jump", "heap-corruption"),
    tried=Tried(
        advice=("If it makes code objects itself, look there first; otherwise replace what the named line does."),
        result="crash gone",
        how="The function whose code object had been replaced was left as it was, and ran.",
        test="tests/rules/test_advice.py::test_interpreter_bug",
    ),
    hit="""
        signal SIGSEGV SEGV_MAPERR 0x0 write
        at 0x7f0000001000 add qword ptr [rax], 1
        operand write [rax] = 0x0 size 8 rax=0x0
        thread 4711 python3 crashed
        stack 8MiB used 20KiB whole main
        frame tupleitem @ libpython3.11.so.1.0 takes 16
        frame tuplesubscript @ libpython3.11.so.1.0 takes 32
        frame _PyEval_EvalFrameDefault @ libpython3.11.so.1.0 takes 320
        python g /home/u/inspect_gc.py:29
        module /usr/lib/libpython3.11.so.1.0
        module /usr/lib/python3.11/lib-dynload/math.cpython-311-x86_64-linux-gnu.so
        module /usr/lib/x86_64-linux-gnu/libc.so.6
    """,
    miss="""
        signal SIGSEGV SEGV_MAPERR 0x0 write
        at 0x7f0000001000 add qword ptr [rax], 1
        operand write [rax] = 0x0 size 8 rax=0x0
        thread 4711 python3 crashed
        stack 8MiB used 20KiB whole main
        frame tupleitem @ libpython3.11.so.1.0 takes 16
        frame tuplesubscript @ libpython3.11.so.1.0 takes 32
        frame _PyEval_EvalFrameDefault @ libpython3.11.so.1.0 takes 320
        python g /home/u/inspect_gc.py:29
        module /usr/lib/libpython3.11.so.1.0
        module /usr/lib/python3.11/lib-dynload/_ctypes.cpython-311-x86_64-linux-gnu.so
        module /usr/lib/x86_64-linux-gnu/libc.so.6
    """,
)
