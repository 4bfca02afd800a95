"""Stack overflow by recursion.

What happened
-------------
A function called itself, directly or through others, so often that the thread's stack was full. The next call wrote
below the end of the stack and the kernel ended the process by SIGSEGV. Nothing was printed: the program had no stack
left to print with. Four kinds look alike from outside and need different cures:

- *native*: C or C++ code calls itself, for example a kernel that walks a tree or counts down from its input;
- *Python-driven*: CPython's C code recurses on behalf of your Python (``repr`` of a deep list, ``copy.deepcopy``, ``json``,
  a chain of ``map``; on Python 3.10 and older every Python call);
- *mixed*: Python calls C, which calls Python again;
- *destructor*: a deep structure is freed, and every part frees the next one from within its own destructor. The line that crashes is then only the end of a block.

How to be sure
--------------
The fault address is just below the stack of the thread that crashed, and one group of calls repeats over most of that
stack. Both are in the evidence. On Windows the exception itself says it: 0xC00000FD (-1073741571). The depth at which
the stack is full is its size divided by the bytes per level. If the program's real depth (the length of a list, the
value of an input) is near that number, this is the cause. With twice the stack, it must crash twice as deep.

How to fix it now
-----------------
Bound the depth, or turn the recursion into a loop with its own stack (``std::vector``, a Python list), which is on
the heap. For destructors of deep chains, take the parts out in a loop before the owner is destroyed.

As a workaround, a larger stack helps if the depth is finite. Set it with ``ulimit -s`` before the start for the main
thread and for threads without a size of their own. Use ``threading.stack_size(n)`` for threads that Python starts.
Windows has no ``ulimit``. There the header of the executable decides for the main thread (``editbin /STACK:67108864``
on a copy of python.exe). Or run the work on a Python thread with a larger stack size. A larger stack costs address
space in every thread, and only moves the limit.

How to prevent it
-----------------
Let no input decide how deep a program recurses: check the depth where data enters, and report an error. Do not raise
``sys.setrecursionlimit``: it removes the guard, not the limit. Run the tests with a stack of 2,000,000 bytes, which
is what python.exe has on Windows.

What it is often mistaken for
-----------------------------
A bad pointer (the signal is the same), heap corruption (a deep stack often overflows inside ``malloc``), and running
out of memory. A Python list of ten million items is not a recursion: it is on the heap.

Sources
-------
- https://man7.org/linux/man-pages/man2/setrlimit.2.html (RLIMIT_STACK)
- https://docs.python.org/3/library/threading.html#threading.stack_size
- https://docs.python.org/3/library/sys.html#sys.setrecursionlimit
"""

from __future__ import annotations

import re

from necropsy.frame_filter import file_name
from necropsy.model import Crash, Culprit, Evidence, Fix, PythonPlace
from necropsy.predicates import died_by, messages, signal_of
from necropsy.rule import Finding, Rule, Tried
from necropsy.rules import musl
from necropsy.rules.culprit import culprit_of, python_line, python_place, recursive_function, spell
from necropsy.rules.exit_causes import BAD_ACCESSES, of_status
from necropsy.rules.stack_fixes import bigger_stack
from necropsy.rules.stacks import MANY, Overflow, depth_of, driver_of, evidence, names, often, overflow_of
from necropsy.rules.wording import count, sentence, short, size

_TITLES = {
    "native": "Stack overflow: a native recursion",
    "python": "Stack overflow: a recursion in CPython's C code, driven by Python",
    "mixed": "Stack overflow: a recursion through Python and native code",
    "destructor": "Stack overflow: destructors call each other along a deep structure",
}


def _match(crash: Crash) -> Finding | None:
    overflow = overflow_of(crash)
    if overflow is None:
        return _full_dump(crash)
    if "recursion" not in overflow.rivals:
        return None
    fold = overflow.fold if overflow.levels else None
    return Finding(
        evidence=evidence(overflow)
        + musl.default_stack(crash, overflow.size, main=overflow.main)
        + depth_of(overflow)
        + python_line(crash, fold),
        summary=_summary(overflow),
        confidence=overflow.rivals["recursion"],
        culprit=(culprit := culprit_of(crash, fold=fold)),
        fixes=(_cure(overflow, culprit), *bigger_stack(overflow)),
        title=_TITLES[driver_of(fold)] if fold else None,
        possible=() if overflow.thread.frames else of_status(_FULL),
    )


def _full_dump(crash: Crash) -> Finding | None:
    """Faulthandler gives no address, but all calls it shows are one recursion, and it continues."""
    thread = crash.crashed_thread
    if thread is None or signal_of(crash) not in {"SIGSEGV", "SIGBUS"} or (crash.fault and crash.fault.address):
        return None
    deep = next((one for one in thread.folds if one.python), None)
    if deep is None or thread.frames:
        return None
    where = PythonPlace(function=deep.python[0].function, file=deep.python[0].source, line=deep.python[0].line)
    calls = " -> ".join(dict.fromkeys(name for name in deep.functions))
    return Finding(
        evidence=(
            *died_by(crash, "SIGSEGV", "SIGBUS"),
            Evidence(
                claim="all calls of Python that are shown are one recursion",
                seen=f"{calls} repeats {count(deep.times)} times, and the dump ends there",
                where="faulthandler",
            ),
            *python_line(crash, deep),
        ),
        summary=f"Most probably the stack was full: {calls} called itself deeper than the dump shows, at {spell(where)}.",
        confidence="likely",
        culprit=Culprit(function=where.function, source=where.file, line=where.line, python=where),
        fixes=(
            Fix(
                text=f"Make {deep.functions[0]} a loop with its own list as the stack, or bound its depth; do not raise sys.setrecursionlimit."
            ),
            Fix(
                text="As a workaround, run it on a thread with a larger stack.",
                command='python -c "import threading; threading.stack_size(512 << 20)"',
            ),
        ),
        title="Stack overflow: a recursion of Python calls",
    )


_FULL = 0xC00000FD
"""Windows' status of a full stack: what it was found to be holds of every full stack whose calls are not known."""


def _summary(overflow: Overflow) -> str:
    fold = overflow.fold
    if fold is None:
        total = overflow.thread.frames_total
        if messages(overflow.crash, "excessive-recursion"):
            return f"{sentence(overflow.where)} was full; macOS reports that a recursion was too deep."
        if overflow.thread.frames and (total or 0) < MANY:
            return f"{sentence(overflow.where)} was full; what filled it is not known; most often it is a recursion."
        if not total:
            return f"{sentence(overflow.where)} was full; its calls are not known; most often it is a recursion."
        return f"{sentence(overflow.where)} was full: {count(total)} calls were open at once, which is typical of a recursion."
    each = f", {size(fold.bytes_per_period)} of stack each time," if fold.bytes_per_period else ""
    calling = [short(name) for name in names(fold)]
    if driver_of(fold) == "mixed":
        calling += list(dict.fromkeys(f"Python's `{frame.function}`" for frame in fold.python if frame.function))
    depth = f", which is full at a depth of {count(overflow.depth_at_end)}" if overflow.depth_at_end else ""
    driver = driver_of(fold)
    if driver == "destructor":
        what = f"Freeing a deep structure ran {_destroyed(recursive_function(fold))} inside itself {often(overflow)} levels deep{each}"
    elif len(calling) == 1 or driver == "python":
        what = f"{calling[0]} called itself {often(overflow)} times{each}"
    else:
        if len(calling) > _NAMED:
            calling[_NAMED - 1 :] = [f"{count(len(calling) - _NAMED + 1)} more functions"]
        what = f"{' and '.join((', '.join(calling[:-1]), calling[-1]))} called each other {often(overflow)} times{each}"
    end = f"{what} on {overflow.where}{depth}."
    place, _ = python_place(overflow.crash, fold)
    if driver in {"python", "mixed"} and place is not None:
        return f"{end[:-1]}; called from {spell(place)}."
    return end


_NAMED = 3
"""A headline names so many functions that call each other, the last of them *N more functions* where there are others."""


def _destroyed(function: str) -> str:
    """A destructor's name; a container's keeps its members' type, which identifies the structure."""
    container = re.match(r"std::(?:__\w+::)?(\w+)<([^<>,]+)", function)
    return f"`std::{container[1]}<{container[2].strip()}>::~{container[1]}`" if container else short(function)


_REGEX = re.compile(r"\b_M_(?:dfs|rep_once_more|handle_(?:match|repeat|alternative|subexpr_\w+))\b")
"""Functions of the matcher of GNU's std::regex (bits/regex_executor.tcc)."""
_OFFSET = re.compile(r"\+0x[0-9a-f]+`$")
"""A place in a library, where its function has no name."""


def _cure(overflow: Overflow, culprit: Culprit | None) -> Fix:
    fold = overflow.fold
    if fold is None:
        return Fix(text="Find the recursion and bound its depth, or make it a loop with its own list as the stack.")
    name = short(recursive_function(fold))
    limit = f" This stack has room for {count(overflow.depth_at_end)} levels." if overflow.depth_at_end else ""
    if (driver := driver_of(fold)) == "destructor":
        return Fix(
            text=f"Free the structure in a loop: move the children out of each part into a std::vector before the part is destroyed, or keep all parts in one vector and link them by index.{limit}"
        )
    python = next((frame.function for frame in fold.python if frame.function), None)
    if driver == "python" and python is not None:
        return Fix(
            text=f"Make Python's `{python}` a loop with its own list as the stack, or reject data that is nested too deeply. Raising sys.setrecursionlimit does not help.{limit}"
        )
    if driver == "python":
        if _OFFSET.search(name):
            name = "this code of Python itself"
        return Fix(
            text=f"Flatten the data before it gets to {name}, or walk it with a loop and a list in Python; do not raise "
            f"sys.setrecursionlimit.{limit}"
        )
    if any(_REGEX.search(function) for function in fold.functions if function):
        return Fix(
            text=f"std::regex calls itself once for each character that it matches, and this cannot be switched off: pass it shorter texts, or use another library for regular expressions (RE2, PCRE2, Boost.Regex).{limit}"
        )
    if driver == "mixed" and python is not None:
        name = f"Python's `{python}`, or what it calls,"
    elif culprit is not None and culprit.source and culprit.line:
        name += f" ({file_name(culprit.source)}:{culprit.line})"
    return Fix(
        text=f"Make {name} a loop with its own std::vector or list as the stack, or reject deeper inputs.{limit}"
    )


RULE = Rule(
    _match,
    title="Stack overflow: a recursion",
    needs=("fault",),
    beats=(*BAD_ACCESSES, "python-exception", "killed-by-signal"),
    tried=Tried(
        advice="Make the named function a loop, or reject deeper inputs.",
        result="crash gone",
        how=(
            "The recursion over a million levels became a loop, and the program ended normally on the same "
            "stack. The second piece of advice, a larger stack, is verified for the examples (see *Causes put "
            "to the test* in docs/explanation/tried-on.md)."
        ),
        test="tests/rules/test_advice.py::test_native",
    ),
    hit="""
        signal SIGSEGV SEGV_MAPERR 0x7ffc00000ff8 write
        thread 4711 python3 crashed
        stack 8MiB used 8MiB exhausted main
        frame _int_malloc @ libc.so.6 takes 176
        frame malloc @ libc.so.6 takes 32
        frame recurse(int) @ op.so in op.cc:12 takes 80
        frame recurse(int) @ op.so in op.cc:12 takes 80
        frames 104860
        fold 1 x 104850 takes 80: recurse(int)
        python compute train.py:7
    """,
    miss="""
        signal SIGSEGV SEGV_MAPERR 0x7ffc00000ff8 write
        thread 4711 python3 crashed
        stack 8MiB used 1MiB whole main
        frame recurse(int) @ op.so in op.cc:12 takes 80
        frame recurse(int) @ op.so in op.cc:12 takes 80
        frames 13000
        fold 1 x 12990 takes 80: recurse(int)
    """,
)
