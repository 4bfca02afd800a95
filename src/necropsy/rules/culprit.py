"""Who did it: the innermost frame that is not noise, and the line of Python that led there."""

from __future__ import annotations

import re
from fnmatch import translate
from functools import lru_cache
from importlib.resources import files

from necropsy.model import Crash, Culprit, Evidence, Fold, Frame, PythonPlace, Thread
from necropsy.questions import bare_name, is_main, name_of
from necropsy.rule import NOTHING, Found

_INTERPRETER_MODULE = re.compile(
    r"(?:libpython3[\w.]*\.(?:so|dylib)|python3?(?:\.\d+)?$|^Python$|^pythonw?\.exe$|^python\d*(?:_d)?(?:\.dll)?$|"
    r"_ctypes(?:\.|$)|libffi)"
)
_SYSTEM_MODULE = re.compile(
    r"(?:lib(?:c|m|dl|rt|pthread|gcc_s|stdc\+\+|ffi|tcmalloc\w*|jemalloc|mimalloc|[at]san|ubsan|c_malloc_debug)[.\-]|ld[-.]|\[vdso\])"
)
_WINDOWS_MODULE = re.compile(
    r"(?:ntdll|kernel32|kernelbase|ucrtbased?|msvcrt|msvcr\d+d?|msvcp[\w.]+|vcruntime\d+\w*|concrt\d+|user32|win32u|"
    r"gdi32(?:full)?|combase|rpcrt4|sechost|verifier|wow64\w*|clr|coreclr|mscorwks|libgcc_s\w*-\d|libstdc\+\+-\d|"
    r"libwinpthread-\d|libssp-\d|api-ms-win-\S+?|ext-ms-win-\S+?|ucrtbase_\w+|apphelp|dbghelp|win32kfull|faultrep|wer)(?:\.dll)?$",
    re.IGNORECASE,
)
"""Windows' own libraries; a debugger names them without ``.dll``."""
_MACOS_MODULE = re.compile(
    r"(?:libsystem_|libc\+\+|libobjc|libdyld|libdispatch|dyld$|libSystem|"
    r"(?:com\.apple\.)?(?:CoreFoundation|Foundation|HIToolbox|AppKit|QuartzCore)$)"
)
_INTERPRETER_SOURCE = re.compile(r"(?:^|/)(?:Python|Objects|Modules|Parser|Include)/(?:\w+/){0,2}\w+\.[ch]$")
"""Files of CPython: where a debugger knows the source, it does not name the library."""
_SYSTEM_SOURCE = re.compile(
    r"(?:^\.{1,2}/|/glibc[^/]*/|^csu/)(?:\.\./)?(?:sysdeps|nptl|csu|malloc|stdlib|assert|debug|elf|libio|string|signal|posix|io|misc|setjmp)/"
    r"|/libstdc\+\+-v3/|/libsanitizer/|/compiler-rt/lib/|/libgcc/"
)
_CPP_SOURCE = re.compile(
    r"/include/c\+\+/|/c\+\+/v1/|(?:^|/)bits/\w+\.(?:h|tcc)$|^(?:basic_string|char_traits|stl_\w+|new_allocator|alloc_traits|"
    r"allocator|unique_ptr|shared_ptr(?:_base)?|std_function|std_thread|invoke|hashtable(?:_policy)?|ptr_traits)\.(?:h|tcc)$|"
    r"^(?:thread|future|functional|memory|mutex|vector|string|map|list|deque|algorithm|atomic|optional|variant|tuple)$"
)
"""Headers of the C++ library: what is compiled from them stands in the library that uses it, often without its ``std::``."""
_CPP_HEADER = re.compile(
    r"/include/c\+\+/|(?:^|/)(?:\w+|(?:stl|std)_\w+\.h|(?:invoke|unique_ptr|shared_ptr\w*|basic_string)\.h)$"
)
"""A header of the C++ library: no other source has a name without an ending."""
_EVALUATES = re.compile(r"_?PyEval_EvalFrame(?:Default|Ex)?$")
_SENT = {"SI_USER", "SI_TKILL", "SI_QUEUE"}
_OF_THE_SYSTEM = {"abort", "allocator", "string", "interpreter"}
_GENERATED = "__autograph_generated_file"
"""A file of tf.function's: it is gone after the run."""
_LIBRARY = re.compile(
    r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib(?:64)?[/\\]python3\.\d+[/\\]|^<|[/\\]Lib[/\\]|" + _GENERATED
)
_WAITS_IN_RUNTIME = re.compile(
    r"quick_execute|_call_tf_sessionrun|TFE_Py_\w+|TF_SessionRun\w*|_call_flat|call_function|_run_fn|_next_internal"
)


@lru_cache(maxsize=1)
def _noise() -> dict[str, re.Pattern[str]]:
    """Section of ``data/noise_frames.txt`` -> one pattern for all its names."""
    names: dict[str, list[str]] = {}
    section = ""
    for row in files("necropsy.data").joinpath("noise_frames.txt").read_text(encoding="utf-8").splitlines():
        row = row.split("#", 1)[0].strip()  # noqa: PLW2901 - the row without its comment
        if row.startswith("["):
            section = row.strip("[]")
        elif row:
            names.setdefault(section, []).append(translate(row))
    return {section: re.compile("|".join(patterns)) for section, patterns in names.items()}


@lru_cache(maxsize=4096)
def _noise_of(name: str) -> str | None:
    return next((section for section, pattern in _noise().items() if pattern.match(name)), None)


def noise(frame: Frame) -> str | None:
    """What kind of noise the frame is (a section of ``noise_frames.txt``), or None where it may be the culprit."""
    if frame.function is None:
        return None
    section = _noise_of(bare_name(frame.function))
    if section in _OF_THE_SYSTEM and not _is_system(frame):
        section = None
    if section is None and frame.source is not None and _CPP_HEADER.search(frame.source):
        section = "cpp-library"
    if section is not None:
        return section
    if frame.source is not None and _CPP_SOURCE.search(frame.source):
        return "cpp-library"
    if is_interpreter(frame):
        return "interpreter's own"
    known = frame.module is not None or (frame.source is not None and _SYSTEM_SOURCE.search(frame.source) is not None)
    return "system" if known and _is_system(frame) else None


def noise_of_module(frame: Frame) -> bool:
    """The frame's library is known, and is the system's or Python's."""
    return frame.module is not None and _is_system(frame)


def _is_system(frame: Frame) -> bool:
    """The frame's library is the system's or Python's, or nobody knows which it is."""
    if is_interpreter(frame):
        return True
    if frame.module is None:
        return frame.source is None or "/" not in frame.source or bool(_SYSTEM_SOURCE.search(frame.source))
    name = file_name(frame.module)
    return any(pattern.match(name) for pattern in (_SYSTEM_MODULE, _WINDOWS_MODULE, _MACOS_MODULE))


def file_name(path: str) -> str:
    """The last part of a path of Linux or of Windows."""
    return re.split(r"[/\\]", path)[-1]


def is_interpreter(frame: Frame) -> bool:
    """The frame's code belongs to CPython itself."""
    if frame.module is None:
        return frame.source is not None and _INTERPRETER_SOURCE.search(frame.source) is not None
    return bool(_INTERPRETER_MODULE.search(file_name(frame.module)))


def innermost(frames: tuple[Frame, ...]) -> Frame | None:
    """The frame to blame: the innermost one that is no noise.

    Where all is noise, the innermost working function of CPython (``list_repr``) or of the system (``memcpy``) says more
    than nothing. How a process gives up, and how it began, is never the answer.
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
    return named[-1] if named and frames[0].function and _is_loop(named[-1]) and _all_inlined(named[:-1]) else None


def _is_only_placed(frame: Frame) -> bool:
    """All that a text knows of the frame is a library that is neither the system's nor Python's: it, not its caller, did it."""
    return frame.found_by == "text" and frame.module is not None and not _is_system(frame)


def _all_inlined(frames: list[Frame]) -> bool:
    return all(is_interpreter(frame) and noise(frame) == "interpreter" for frame in frames)


def _is_loop(frame: Frame) -> bool:
    return bool(frame.function and is_interpreter(frame) and _EVALUATES.match(bare_name(frame.function)))


def outside_of_python(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """The frames up to the innermost loop of the interpreter: what called Python did not do what Python did."""
    for position, frame in enumerate(frames):
        if _is_loop(frame):
            return frames[: position + 1]
    return frames


def culprit_of(crash: Crash, *, frame: Frame | None = None, fold: Fold | None = None) -> Culprit | None:
    """The culprit of a crash; ``frame`` or ``fold`` where the rule knows better than *the innermost frame*."""
    thread = crash.crashed_thread
    if frame is None and thread is not None:
        if fold is not None:
            frame = _of_fold(thread, fold)
        else:
            frame = _nameless(crash, thread) or innermost(thread.frames or ())
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
    )


def _nameless(crash: Crash, thread: Thread) -> Frame | None:
    """The frame that faulted, where its function has no name: in a stripped library, or in code made at run time.

    Its caller has a name and did nothing: it must not be blamed instead.
    """
    frame = thread.frames[0] if thread.frames else None
    if frame is not None and frame.function is not None and crash.fault is None:
        return _ended_itself(crash, thread)
    if frame is None or frame.function is not None:
        return None
    if frame.found_by == "text" and frame.module is not None:
        return _told(crash, thread, frame)
    if crash.fault is None:
        return _ended_itself(crash, thread)
    if noise_of_module(frame):
        return None
    if crash.instruction is None:  # it could not be read; a program counter within a library is code of it
        ran = crash.fault.access in {"read", "write"} and frame.module is not None
    else:
        ran = crash.instruction.text is not None and crash.fault.access != "exec"
    return frame if ran and crash.fault.code not in _SENT else None


def _ended_itself(crash: Crash, thread: Thread) -> Frame | None:
    """Windows: the code that raised an exception or failed fast, where all that is known of it is its library."""
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
    """A nameless frame that a text tells of: often all that a system's own report has is a library and an offset in it."""
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
    # Destructors first: of `unique_ptr` and `Link` that destroy each other in turn, the reader knows Link.
    # A period has no inside: where it passes through Python, what stands behind the interpreter's loop takes part too.
    best = _best(tuple(frame for frame in frames if "::~" in (frame.function or ""))) or _best(frames)
    return best.function if best and best.function else (fold.functions[0] if fold.functions else "?")


def _of_fold(thread: Thread, fold: Fold) -> Frame:
    """The frame of the recursive function, with its source where one of the frames that were kept tells it."""
    name = recursive_function(fold)
    for frame in thread.frames or ():
        if frame.function == name:
            return frame
    return Frame(index=fold.start or 0, kind="native", function=name)


# ---------------------------------------------------------------- the line of Python


def python_place(crash: Crash, fold: Fold | None = None) -> tuple[PythonPlace | None, str | None]:
    """The line of Python to look at, and how it is related to the crash.

    The innermost line of the crashed thread outside of installed packages: the one that its author can change. On a
    thread that runs no Python, the line of the thread that waits for the framework's runtime.
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
    return next((frame for frame in frames if frame.source and not _LIBRARY.search(frame.source)), None)


def _place(frame: Frame) -> PythonPlace:
    return PythonPlace(function=frame.function, file=frame.source, line=frame.line)


def _waits(thread: Thread, crash: Crash) -> bool:
    """The thread is inside of the framework's runtime, which handed the work to its pool."""
    python = any(frame.function and _WAITS_IN_RUNTIME.fullmatch(frame.function) for frame in (thread.python or ())[:12])
    native = any(
        frame.function and _WAITS_IN_RUNTIME.fullmatch(bare_name(frame.function))
        for frame in (thread.frames or ())[:64]
    )
    return python or native or (is_main(thread, crash) and _in_framework(thread))


def _in_framework(thread: Thread) -> bool:
    innermost_python = thread.python[0].source if thread.python else None
    return bool(innermost_python and re.search(r"[/\\](?:tensorflow|keras|torch|jax)[/\\]", innermost_python))
