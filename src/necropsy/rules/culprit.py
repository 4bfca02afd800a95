"""Who did it: the innermost frame that is not noise, and the line of Python that led there."""

from __future__ import annotations

import re
from itertools import pairwise

from necropsy.frame_filter import (
    file_name,
    is_interpreter,
    is_loop,
    is_system,
    noise,
    noise_of_module,
    outside_of_python,
)
from necropsy.lazy_re import regex
from necropsy.model import Crash, Culprit, Evidence, Fold, Frame, PythonPlace, Thread, typed_frames
from necropsy.predicates import bare_name, is_main, name_of
from necropsy.rule import NOTHING, Found

_SENT = {"SI_USER", "SI_TKILL", "SI_QUEUE"}
_GENERATED = "__autograph_generated_file"
"""A file of tf.function's: it is gone after the run."""
_LIBRARY = regex(
    r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib(?:64)?[/\\]python3\.\d+[/\\]|^<|[/\\]Lib[/\\]|"
    # The embeddable distribution of Windows keeps its library in a file.
    r"[/\\]python3\d+\.zip[/\\]|" + _GENERATED
)
_WAITS_IN_RUNTIME = regex(
    r"quick_execute|_call_tf_sessionrun|TFE_Py_\w+|TF_SessionRun\w*|_call_flat|call_function|_run_fn|_next_internal"
)

_OPENMP_WORKER = regex(r"gomp_thread_start|__kmp_(?:launch_(?:worker|thread)|invoke_microtask|invoke_task_func)")
_OPENMP_BEGIN = regex(r"GOMP_parallel|__kmpc_fork_call|__kmp_GOMP_fork_call")
"""GCC's libgomp, and LLVM's and Intel's libomp."""


def innermost(frames: tuple[Frame, ...]) -> Frame | None:
    """The frame to blame: the innermost one that is not noise.

    If all are noise, the innermost working function of CPython (``list_repr``) or of the system (``memcpy``) is taken,
    but never a function that starts or ends the process.
    """
    return _best(outside_of_python(frames))


def _best(frames: tuple[Frame, ...]) -> Frame | None:
    named = [frame for frame in frames if frame.function or _is_only_placed(frame)]
    for allowed in ({None}, {"interpreter's own", "cpp-library", "dispatch", "string", "system"}, {"allocator"}):
        for frame in named:
            if noise(frame) in allowed:
                return frame
    named = [frame for frame in named if frame.function]
    # Code or a stack that was tampered with: it is the interpreter's loop itself that faulted.
    return named[-1] if named and frames[0].function and is_loop(named[-1]) and _all_inlined(named[:-1]) else None


def _is_only_placed(frame: Frame) -> bool:
    """A text gives only the library, which is not the system's or Python's: blame it, not its caller."""
    return frame.found_by == "text" and frame.module is not None and not is_system(frame)


def _all_inlined(frames: list[Frame]) -> bool:
    return all(is_interpreter(frame) and noise(frame) == "interpreter" for frame in frames)


def culprit_of(crash: Crash, *, frame: Frame | None = None, fold: Fold | None = None) -> Culprit | None:
    """The culprit of a crash; ``frame`` or ``fold`` where the rule knows better than *the innermost frame*."""
    thread = crash.crashed_thread
    nearest = False
    if frame is None and thread is not None:
        if fold is not None:
            frame = _of_fold(thread, fold)
        else:
            frame = _nameless(crash, thread) or innermost(thread.frames or ())
            nearest = frame is not None and handed_to(thread.frames or (), frame) is not None
    place, _ = python_place(crash, fold)
    if place is not None and frame is not None and noise(frame) == "allocator":
        frame = None  # what Python called through ctypes: that line did it, not `free`
    operation = crash.operation
    if frame is None and place is None and operation is None:
        return None
    return Culprit(
        function=frame.function if frame else (fold.functions[0] if fold and fold.functions else None),
        module=file_name(frame.module) if frame and frame.module else None,
        source=frame.source if frame else None,
        line=frame.line if frame else None,
        python=place,
        op=operation.op if operation else None,
        kernel=operation.kernel if operation else None,
        nearest=nearest and frame is not None,
    )


def handed_to(frames: tuple[Frame, ...], blamed: Frame) -> Frame | None:
    """Python's own function that ``blamed`` called and that crashed; None if there is none between.

    ``blamed`` is then only the nearest frame outside the interpreter.
    """
    if is_interpreter(blamed):
        return None
    before = [frame for frame in frames if frame.index < blamed.index]
    inside = [
        frame for frame in before if is_interpreter(frame) and not _FOREIGN_CALLS.match(file_name(frame.module or ""))
    ]
    # The one that was called stands outermost; Py_INCREF and its like are only inlined into it.
    return next((frame for frame in reversed(inside) if frame.function is not None), inside[-1] if inside else None)


_FOREIGN_CALLS = regex(r"_ctypes|_cffi_backend|libffi")


def _nameless(crash: Crash, thread: Thread) -> Frame | None:
    """The faulting nameless function, in a stripped library or generated code; its named caller did nothing wrong."""
    frame = thread.frames[0] if thread.frames else None
    if frame is None:
        return None
    if frame.function is None and frame.found_by == "text" and frame.module is not None:
        return _told(crash, thread, frame)
    if crash.fault is not None and crash.fault.signal == "SIGABRT":
        return _caller_of_the_system(thread, _GIVES_UP)
    if frame.function is not None:
        return _ended_itself(crash, thread) if crash.fault is None else _caller_of_the_system(thread, _HELPERS)
    if crash.fault is None:
        return _ended_itself(crash, thread)
    if noise_of_module(frame):
        return _caller_of_the_system(thread, _HELPERS)
    if crash.instruction is None:  # it could not be read; a program counter within a library is code of it
        ran = crash.fault.access in {"read", "write"} and frame.module is not None
    else:
        ran = crash.instruction.text is not None and crash.fault.access != "exec"
    return frame if ran and crash.fault.code not in _SENT else None


_HELPERS = frozenset({"string", "system"})
_GIVES_UP = _HELPERS | {"abort", "allocator", "logging", "cpp-runtime", "cpp-library"}
"""What may stand between abort() and who led to it: the C library that found a block freed twice, std::terminate."""
_FOLLOWED = frozenset({"cfi", "frame-pointer"})


def _caller_of_the_system(thread: Thread, helpers: frozenset[str]) -> Frame | None:
    """A stripped library's nameless caller of a system function (memcpy, free); a C library may lack names as well."""
    for frame in (thread.frames or ())[:_FAR_ENOUGH]:
        if frame.module is None or frame.found_by not in _FOLLOWED | {"registers"} or is_interpreter(frame):
            return None
        if not noise_of_module(frame):
            return frame if frame.function is None else None
        if frame.function is not None and noise(frame) not in helpers:
            return None
    return None


_FAR_ENOUGH = 16
"""Frames of the system between the fault and who called it."""


def _ended_itself(crash: Crash, thread: Thread) -> Frame | None:
    """Windows: the code that raised an exception or failed fast, if only its library is known."""
    if crash.exit is None or crash.exit.ntstatus is None:
        return None
    return nameless(thread.frames or ())


def nameless(frames: tuple[Frame, ...]) -> Frame | None:
    """The innermost frame that is neither the system's nor noise, where it has no name; None where it has one."""
    for frame in frames:
        if frame.found_by in {"scan", "text"}:
            return None
        if noise_of_module(frame) or noise(frame) is not None:
            continue
        return frame if frame.function is None and frame.module is not None else None
    return None


def _told(crash: Crash, thread: Thread, frame: Frame) -> Frame | None:
    """A nameless frame from a text: often a system report has only a library and an offset."""
    if crash.fault is not None and crash.fault.access == "exec":
        return None
    alone = not any(one.function for one in thread.frames or ())
    return frame if not noise_of_module(frame) or (alone and is_interpreter(frame)) else None


def recursive_function(fold: Fold) -> str:
    """The function that gives a recursion its name: the first of its period that is no noise."""
    modules = fold.modules or (None,) * len(fold.functions)
    frames = tuple(
        Frame(index=index, kind="native", function=function, module=module)
        for index, (function, module) in enumerate(zip(fold.functions, modules, strict=False))
    )
    # Which of them stood innermost when the stack ended is chance: the same recursion has the same name each time.
    turned = [(*frames[at:], *frames[:at]) for at in range(len(frames))]
    frames = min(turned, key=lambda some: [(one.function or "", one.module or "") for one in some], default=())
    # Destructors first: of `unique_ptr` and `Link` that destroy each other in turn, the reader knows Link.
    # A period has no inside: where it passes through Python, what stands behind the interpreter's loop takes part too.
    best = _best(tuple(frame for frame in frames if "::~" in (frame.function or ""))) or _best(frames)
    return best.function if best and best.function else (fold.functions[0] if fold.functions else "?")


def _of_fold(thread: Thread, fold: Fold) -> Frame:
    """With the source from any of the recorded frames."""
    name = recursive_function(fold)
    for frame in thread.frames or ():
        if frame.function == name:
            return frame
    modules = dict(zip(fold.functions, fold.modules or (), strict=False))
    return Frame(index=fold.start or 0, kind="native", function=name, module=modules.get(name))


# ---------------------------------------------------------------- the line of Python


def python_place(crash: Crash, fold: Fold | None = None) -> tuple[PythonPlace | None, str | None]:
    """The line of Python to look at, and how it is related to the crash.

    The crashed thread's innermost line outside installed packages, which its author can change. If the thread runs no
    Python, the line of the thread that waits for the framework's runtime, or that began OpenMP's parallel region.
    """
    thread = crash.crashed_thread
    if thread is None:
        return None, None
    own = _own_line(thread.python or ())
    if own is None and thread.python and fold is not None and fold.python:
        own = fold.python[0]
    if own is not None:
        return _place(own), f"the Python code of {name_of(thread, crash)}"
    for other in crash.threads or ():
        if other is thread or not other.python or not _waits(other, crash):
            continue
        best = _own_line(other.python)
        if best is not None or not thread.python:
            how = f"{name_of(other, crash)} waits here for the work that {name_of(thread, crash)} does"
            return _place(best or other.python[0]), how
    began = None if thread.python else _region_began(crash, thread)
    if began is not None and began.python:
        how = f"{name_of(began, crash)} began the parallel work that {name_of(thread, crash)} did a part of"
        return _place(_own_line(began.python) or began.python[0]), how
    if thread.python:
        generated = next((frame for frame in thread.python if frame.source and _GENERATED in frame.source), None)
        return _place(generated or thread.python[0]), f"the Python code of {name_of(thread, crash)}"
    return None, None


def python_line(crash: Crash, fold: Fold | None = None) -> Found:
    """The line of Python as evidence."""
    place, how = python_place(crash, fold)
    if place is None or how is None:
        return NOTHING
    return (Evidence(claim="the line of Python that led here", seen=spell(place), where=how),)


def spell(place: PythonPlace) -> str:
    """``train.py:12 in main``."""
    line = f":{place.line}" if place.line is not None else ""
    return f"{place.file or '?'}{line}" + (f" in {place.function}" if place.function else "")


def own_place(thread: Thread) -> PythonPlace | None:
    """The innermost line of a thread that is outside of installed packages, else its innermost one."""
    if not thread.python:
        return None
    return _place(_own_line(thread.python) or thread.python[0])


def _own_line(frames: tuple[Frame, ...]) -> Frame | None:
    own = next((frame for frame in frames if frame.source and not _LIBRARY.search(frame.source)), None)
    return own or next(iter(typed_frames(frames)), None)


def _place(frame: Frame) -> PythonPlace:
    return PythonPlace(function=frame.function, file=frame.source, line=frame.line)


def _waits(thread: Thread, crash: Crash) -> bool:
    """The thread waits in the framework's runtime, which gave the work to its pool."""
    python = any(frame.function and _WAITS_IN_RUNTIME.fullmatch(frame.function) for frame in (thread.python or ())[:12])
    native = any(
        frame.function and _WAITS_IN_RUNTIME.fullmatch(bare_name(frame.function))
        for frame in (thread.frames or ())[:64]
    )
    return python or native or (is_main(thread, crash) and _in_framework(thread))


def _region_began(crash: Crash, thread: Thread) -> Thread | None:
    """The Python thread that began the parallel region of OpenMP that ``thread`` takes part in, if that is clear."""
    frames = thread.frames or ()
    region = next(
        (one for one, caller in pairwise(frames) if caller.function and _OPENMP_WORKER.match(caller.function)), None
    )
    if region is None:
        return None
    began = [
        other
        for other in crash.threads or ()
        if other.python and any(frame.function and _OPENMP_BEGIN.match(frame.function) for frame in other.frames or ())
    ]
    same = [
        other
        for other in began
        if any((one.function, one.module) == (region.function, region.module) for one in other.frames or ())
    ]
    found = same or began
    return found[0] if len(found) == 1 else None


def _in_framework(thread: Thread) -> bool:
    innermost_python = thread.python[0].source if thread.python else None
    return bool(innermost_python and re.search(r"[/\\](?:tensorflow|keras|torch|jax)[/\\]", innermost_python))
