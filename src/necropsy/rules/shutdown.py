"""The end of a program: what still runs when the work is done, and what skips it.

Python's order (Python/pylifecycle.c, ``Py_FinalizeEx``): join threads, call ``atexit`` functions in reverse, take
modules apart. Then the C library's ``exit`` calls ``atexit(3)`` functions and static destructors, without Python.
"""

from __future__ import annotations

from necropsy.model import Change, Crash, Evidence, Fix, Proposal
from necropsy.predicates import bare_name, frames_of
from necropsy.rule import Found

_EXIT = frozenset({"exit", "__run_exit_handlers", "__cxa_finalize", "_dl_fini"})
_FINALIZES = frozenset({"Py_FinalizeEx", "Py_Finalize", "finalize_modules"})
_RUNS = "_PyEval_EvalFrame"


def after_python(crash: Crash) -> Found:
    """The C library runs what was registered for the end, and no Python code has asked for that end: it has ended."""
    return _ending(crash, _EXIT, "Python had ended: the C library ran what was registered for the program's end")


def while_ending(crash: Crash) -> Found:
    """Python takes itself apart: threads have been waited for, modules and objects are being freed."""
    return _ending(crash, _FINALIZES, "Python was ending")


def _ending(crash: Crash, names: frozenset[str], claim: str) -> Found:
    frames = frames_of(crash)
    bare = [bare_name(frame.function) if frame.function else "" for frame in frames]
    place = next((index for index, name in enumerate(bare) if name in names), None)
    if place is None or any(name.startswith(_RUNS) for name in bare[place:]):
        return ()
    frame = frames[place]
    return (Evidence(claim=claim, seen=f"{frame.function}", where=f"frame {frame.index}"),)


_SKIPS = "atexit.register(lambda: (sys.stdout.flush(), sys.stderr.flush(), os._exit(0)))"


def of_ending(crash: Crash, *, proves: bool = False) -> tuple[Proposal, ...]:
    """Skip the end, so that a crash there disappears; ``proves``: it must not run at the end at all."""
    if not after_python(crash) and not while_ending(crash):
        return ()
    return (
        Proposal(
            name="no-exit-handlers",
            # What is registered first is called last: all other functions of Python's atexit have had their turn.
            change=Change(at_start=("import atexit, os, sys", _SKIPS)),
            text="the process ends as soon as Python's own atexit functions have run (os._exit)",
            predicts=("survives",),
            proves=proves,
            refutes=False,
            fix=Fix(
                text="As a workaround, end the program as follows, from its first lines on. What is registered for the end after Python, and destructors, are skipped. Files that native code holds open are not flushed, and the exit "
                "code is 0 whatever happened.",
                command=f"import atexit, os, sys; {_SKIPS}",
            ),
        ),
    )
