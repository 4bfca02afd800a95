"""A thread nearly used up its stack.

What happened
-------------
The program ended well, but one of its threads came close to the end of its stack. A somewhat larger input, another compiler, or a library that
takes a little more would overflow it, and the process would die of SIGSEGV. A warning is given where less than 12 % is left. A note is given
where less than 25 % is left, or less than 256 KiB of a stack of which at least half was used.

How to be sure
--------------
``necropsy profile`` shows the peak of each thread, and which functions filled the stack. Run it with an input that is 10 % larger and see how
the peak grows: a recursion grows with its input, a large local array does not.

How to fix it now
-----------------
Give the thread more stack, in the way that set its size: ``ulimit -s`` for the main thread and for threads that name no size,
``threading.stack_size`` for Python's threads, ``OMP_STACKSIZE`` for OpenMP's.

How to prevent it
-----------------
Turn the recursion into a loop, or refuse input that is nested too deeply. Put large local arrays on the heap. In the source of a custom op,
``necropsy check --fix`` limits the depth of recursions and moves large arrays to the heap. Run ``necropsy profile`` on your
largest inputs before a release, on the system with the smallest stacks.

What it is often mistaken for
-----------------------------
Memory that runs out: a stack has a limit of its own, and overflows while most memory is free. A recursion limit of Python:
``sys.setrecursionlimit`` counts Python calls, not bytes of this stack.

Sources
-------
- https://man7.org/linux/man-pages/man2/setrlimit.2.html
- https://man7.org/linux/man-pages/man3/pthread_create.3.html
- https://docs.python.org/3/library/threading.html#threading.stack_size
"""

from __future__ import annotations

import re

from necropsy.model import Culprit, Evidence, Fix, Process, PythonPlace, StackFunction, StackUse
from necropsy.rule import Finding, Rule, several
from necropsy.rules.wording import size

_WARNING, _NOTE = 0.12, 0.25
"""Shares of a stack that are left."""
_FEW = 256 << 10
"""One call into the C library can take several KiB; bytes left matter as much as the share."""
_SPARE = 0.25
"""The share that the proposed size leaves."""
_KIB = 1 << 10
_RECURSION = 8
"""Frames of one function from which on it calls itself, directly or not."""
_LARGE = 64 << 10
_NOT_THE_USERS = re.compile(r"^(?:lib(?:c|m|pthread|stdc\+\+|gcc_s|python[\d.]+)\.so|python|ld-|\[|_\w+\.cpython-3)")


def _match(process: Process) -> Finding | None:
    if process.exit is not None and process.exit.kind == "signaled":
        return None  # its death has a report
    return several(found for one in process.stacks or () if (found := _of_thread(process, one)) is not None)


def _of_thread(process: Process, stack: StackUse) -> Finding | None:
    if not stack.size or stack.peak is None:
        return None
    left = max(stack.size - stack.peak, 0)
    if left >= _NOTE * stack.size and not (left < _FEW and stack.peak >= stack.size / 2):
        return None
    name = stack.python_name or stack.name or f"thread {stack.tid}"
    least = "" if stack.exact else "at least "
    evidence = Evidence(
        claim=f"{name} used {least}{stack.peak / stack.size:.1%} of its stack",
        seen=f"{stack.peak:,} of {stack.size:,} bytes; {left:,} left",
        where=f"page map of process {process.pid}",
    )
    filled = _largest(stack)
    mostly = f", mostly by {filled.function}" if filled is not None else ""
    summary = f"{name} used {least}{size(stack.peak)} of its stack of {size(stack.size)}{mostly}: {size(left)} left."
    return Finding(
        evidence=(evidence, *(_filled(filled, name) if filled is not None else ())),
        summary=summary,
        confidence="certain",
        severity="warning" if left < _WARNING * stack.size else "note",
        culprit=_culprit(filled) if filled is not None else None,
        fixes=(_fix(stack, name, stack.peak), *(_in_the_source(filled) if filled is not None else ())),
    )


def _largest(stack: StackUse) -> StackFunction | None:
    """The function with the most bytes, where it took a substantial part, and is known to be of the peak."""
    first = next(iter(stack.functions or ()), None)
    known = first is not None and first.function is not None and not first.partial
    return first if known and first is not None and stack.peak and first.bytes >= stack.peak / 4 else None


def _culprit(row: StackFunction) -> Culprit:
    if row.file is None:
        return Culprit(function=row.function, module=row.module)
    return Culprit(python=PythonPlace(function=row.function, file=row.file, line=row.line))


def _filled(row: StackFunction, name: str) -> tuple[Evidence, ...]:
    where = f"the stack of {name} while it ran" if row.how == "seen" else f"return addresses on the stack of {name}"
    return (
        Evidence(
            claim=f"{row.function} took most of it" if row.times == 1 else f"calls of {row.function} took most of it",
            seen=f"{row.times:,} x {row.frame_bytes:,} bytes = {row.bytes:,} bytes",
            where=where,
        ),
    )


def _fix(stack: StackUse, name: str, peak: int) -> Fix:
    wanted = _round(int(peak / (1 - _SPARE)) + _FEW)
    text = f"Give {name} a stack of {size(wanted)}, which leaves a quarter for the same depth"
    match stack.set_by:
        case "ulimit -s" | "glibc":
            return Fix(
                text=f"{text}: set the limit in the shell that starts the program.",
                command=f"ulimit -s {wanted // _KIB}",
            )
        case "OMP_STACKSIZE":
            return Fix(text=f"{text}.", command=f"export OMP_STACKSIZE={wanted // _KIB}K")
        case "threading.stack_size":
            return Fix(text=f"{text}: call `threading.stack_size({wanted})` before the thread is started.")
        case "pthread_attr_setstack":
            return Fix(
                text=f"{text}: the code that starts the thread also gives it the memory, {size(stack.size or 0)} now."
            )
        case _:
            return Fix(
                text=f"{text}, where the thread is created (`pthread_attr_setstacksize`, or the library's own option)."
            )


def _in_the_source(row: StackFunction) -> tuple[Fix, ...]:
    """What to change in the function itself, if it may be the user's."""
    function = row.function or "it"
    if row.file is not None:
        place = f"{row.file}:{row.line}" if row.line is not None else row.file
        return (Fix(text=f"Turn the recursion of {function} ({place}) into a loop with a list of what is left to do."),)
    if row.module is not None and _NOT_THE_USERS.search(row.module):
        return ()
    if row.times >= _RECURSION:
        text = (
            f"Turn the recursion of {function} into a loop, or limit its depth. In a custom op, check limits the depth"
        )
        return (Fix(text=f"{text}: `necropsy check --fix --select op-recursion` with its source."),)
    if row.frame_bytes < _LARGE:
        return ()
    text = f"Move the large local arrays of {function} to the heap. In a custom op, check does that"
    rules = "op-large-frame,op-stack-allocation"
    return (Fix(text=f"{text}: `necropsy check --fix --select {rules}` with its source."),)


def _round(octets: int) -> int:
    """To a number of MiB, or of 64 KiB for a small stack."""
    unit = 1 << 20 if octets > 1 << 20 else 64 << 10
    return -(-octets // unit) * unit


RULE = Rule(
    _match,
    severity="warning",
    needs=("stacks",),
    hit="""{"pid": 4211, "exit": {"kind": "exited", "code": 0}, "stacks": [{"tid": 4211, "name": "main", "size": 8388608, "peak": 7557120,
        "exact": true, "set_by": "ulimit -s", "functions": [{"function": "scan_once_unicode", "module": "_json.so", "frame_bytes": 128,
        "times": 58800, "bytes": 7526400}]}]}""",
    miss="""{"pid": 4211, "exit": {"kind": "exited", "code": 0}, "stacks": [{"tid": 4211, "name": "main", "size": 8388608, "peak": 4194304,
        "exact": true, "set_by": "ulimit -s"}, {"tid": 4213, "name": "pool", "size": 262144, "peak": 98304, "set_by": "attribute"}]}""",
)
