"""A fault inside CPython's or NumPy's own code: something else damaged its data earlier.

If interpreter code reached from Python meets an invalid address, nothing on the stack did it. Suspects are loaded
native libraries outside the interpreter, or the interpreter itself if there are none. A Python API function that native
code called with a null pointer is not such a case: there the caller is known.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import zip_longest

from necropsy.frame_filter import (
    file_name,
    is_interpreter,
    is_loop,
    noise,
    noise_of_module,
    outside_of_python,
    section_of,
)
from necropsy.model import Crash, Evidence, Frame
from necropsy.ownership import Owners, Whose
from necropsy.predicates import bare_name, frames_of, jumped_to, left_for_nowhere, real_fault, stack_exhausted
from necropsy.rule import Found
from necropsy.rules.pointers import BadAccess, bad_access, is_null

_FOREIGN_CALLS = re.compile(r"(?:_ctypes|_cffi_backend|libffi)")
"""Parts of the interpreter that call what the program tells them to, with the arguments that it gives."""
_NUMPY = re.compile(r"_multiarray_umath\.|(?:multiarray|umath)\.(?:cpython|cp3|so|pyd)")
_LOOPS = "NumPy's loops over arrays"
_TAKES_APART = ("the deallocation of objects", "the garbage collector", "the allocator of small objects")
_ON_PURPOSE = re.compile(r"_?faulthandler_\w+")
_READS_WHAT_IT_IS_TOLD = re.compile(r"(?:^|[/\\])ctypes[/\\]__init__\.py$|(?:^|[/\\])cffi[/\\]api\.py$")
_GIVEN = 3
"""Functions of Python's within which a null pointer that the caller gave is used."""
_DEEPEST = 24
"""Frames of the interpreter between the fault and who called it."""
_MOST = 6
"""Suspects that are named."""


@dataclass(frozen=True)
class Machinery:
    """The fault: ``frame`` is the function that died, ``part`` what it is a part of, ``caller`` who called Python."""

    frame: Frame
    part: str | None
    caller: Frame | None
    copied: bool = False
    """It died in memcpy or the like: what it copied was a block of memory, not an object."""


def of_python(crash: Crash) -> Machinery | None:
    """The function of CPython's core that met a damaged object; None where it is not known to have been damaged."""
    access = _fault(crash)
    run = _own_frames(crash)
    if access is None or not run or not _is_core(run[0]):
        return None
    inner = next((one for one in run if is_loop(one) or noise(one) != "interpreter"), run[0])
    if any(one.function and _ON_PURPOSE.fullmatch(bare_name(one.function)) for one in run):
        return None
    called = _caller(crash, run)
    part = _part(inner)
    if inner.function is None and is_null(crash, access):
        # It may be any function of a built-in module. Who called it can tell, or that there is somebody to suspect.
        part = next((known for known in map(_part, run[:_GIVEN]) if known in _TAKES_APART), None)
        if part is None and not suspects(crash):
            return None
    if part in _TAKES_APART:
        return Machinery(inner, part, called)
    given = is_null(crash, access) and sum(noise(one) != "interpreter" for one in run) <= _GIVEN
    if called is not None and (given or _FOREIGN_CALLS.match(file_name(called.module or ""))):
        return None  # it was given that address
    thread = crash.crashed_thread
    python = (thread.python if thread is not None else None) or ()
    if python and _READS_WHAT_IT_IS_TOLD.search(python[0].source or ""):
        return None
    if called is None and not python and not any(is_loop(one) for one in frames_of(crash)):
        return None  # nothing says that Python code led there
    innermost = frames_of(crash)[0]
    return Machinery(inner, part, called, copied=not is_interpreter(innermost) and jumped_to(crash) is None)


def of_numpy(crash: Crash) -> Machinery | None:
    """The loop of NumPy's over an array that met memory which is not there."""
    access = bad_access(crash)
    frames = _without_helpers(frames_of(crash))
    if access is None or not frames or not _NUMPY.match(file_name(frames[0].module or "")):
        return None
    inner = frames[0]
    if inner.function is None:
        # Wheels of NumPy have no names for these loops. A null pointer could be anything there.
        return None if is_null(crash, access) else Machinery(inner, None, None)
    part = _part(inner)
    return Machinery(inner, part, None) if part == _LOOPS else None


def _fault(crash: Crash) -> BadAccess | None:
    """None for neither an access nor a jump, and for a full stack."""
    fault = crash.fault
    if fault is None or not real_fault(crash) or stack_exhausted(crash):
        return None
    # An impossible address in rbp or rsp is a stack fault to the processor, and SIGBUS without an address to Linux.
    if fault.signal != "SIGSEGV" and (fault.signal, fault.code) != ("SIGBUS", "SI_KERNEL"):
        return None
    if jumped_to(crash) is not None or left_for_nowhere(crash):
        return BadAccess("exec", fault.address, fault.address is not None and fault.code != "SI_KERNEL", None)
    return bad_access(crash)


def _own_frames(crash: Crash) -> tuple[Frame, ...]:
    """Innermost frames of Python's core, without the jump's target and without memcpy and similar."""
    frames = frames_of(crash)
    if jumped_to(crash) is not None and frames and frames[0].function is None:
        frames = frames[1:]
    frames = outside_of_python(_without_helpers(frames))
    run: list[Frame] = []
    for frame in frames[:_DEEPEST]:
        if not _is_core(frame):
            break
        run.append(frame)
    # What debug information shows as a call, where the compiler has made none: nobody knows CPython by these names.
    return tuple(one for one, after in zip_longest(run, run[1:]) if after is None or not _is_inlined(one, after))


def _is_inlined(frame: Frame, caller: Frame) -> bool:
    return frame.address is not None and frame.address == caller.address and not frame.stack_bytes


def _without_helpers(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """Skip leading memcpy, strlen and similar, which have no names in a stripped libc."""
    for position, frame in enumerate(frames[:3]):
        of_libc = noise_of_module(frame) and not is_interpreter(frame) and frame.found_by not in {"scan", "text"}
        if not (noise(frame) == "string" or (of_libc and frame.function is None)):
            return frames[position:]
    return ()


def _is_core(frame: Frame) -> bool:
    """Part of libpython or the executable; not ctypes or an extension of the standard library."""
    return is_interpreter(frame) and not _FOREIGN_CALLS.match(file_name(frame.module or ""))


def _caller(crash: Crash, run: tuple[Frame, ...]) -> Frame | None:
    """The caller of Python's own functions, if it is not the interpreter loop."""
    frames = frames_of(crash)
    if any(is_loop(one) for one in run):
        return None
    after = frames[frames.index(run[-1]) + 1 :]
    return next((one for one in after[:1] if not _is_core(one)), None)


def _part(frame: Frame) -> str | None:
    return section_of(bare_name(frame.function), "machinery.txt") if frame.function is not None else None


# ---------------------------------------------------------------- who may have done it


@dataclass(frozen=True)
class Suspect:
    """Native code that is not the interpreter's own: a module, or all those of one package."""

    name: str
    whose: Whose | None
    on_stack: bool


def suspects(crash: Crash) -> tuple[Suspect, ...] | None:
    """Loaded code outside the interpreter and the system: on the stack first, then the user's own; None if unknown."""
    if crash.modules is None:
        return None
    owners = Owners(crash)
    seen = _on_stack(crash, owners)
    found: dict[str, Suspect] = {}
    for module in crash.modules:
        whose: Whose | None = owners.of_path(module.path)
        name = file_name(module.path)
        if name.startswith("libffi"):
            continue  # ctypes and cffi bring it
        if _FOREIGN_CALLS.match(name):
            name, whose = ("cffi" if name.startswith("_cffi") else "ctypes"), None
        elif whose is not None and (whose.owner in {"interpreter", "system"} or not _is_code(name)):
            continue
        elif whose is not None and whose.package is not None:
            name = f"{whose.package} {whose.version}" if whose.version else whose.package
        before = found[name].on_stack if name in found else False
        found[name] = Suspect(name, whose, before or file_name(module.path) in seen or name in seen)
    order = {"native-code": 0, None: 1, "package": 2, "framework": 3}
    return tuple(
        sorted(
            found.values(),
            key=lambda one: (not one.on_stack, order.get(one.whose.owner if one.whose is not None else None, 3)),
        )
    )


def _is_code(name: str) -> bool:
    """The program itself and preloaded libraries, but not mapped data files."""
    return bool(re.search(r"\.(?:so|pyd|dll|dylib)(?:\.|$)", name, re.IGNORECASE)) or "." not in name


def _on_stack(crash: Crash, owners: Owners) -> set[str]:
    """Modules with frames on the stack, and packages with Python code there."""
    thread = crash.crashed_thread
    if thread is None:
        return set()
    found = {file_name(frame.module) for frame in thread.frames or () if frame.module is not None}
    for frame in thread.python or ():
        whose = owners.of_python(frame.source)
        if whose is not None and whose.package is not None:
            found.add(f"{whose.package} {whose.version}" if whose.version else whose.package)
        if frame.source is not None and re.search(r"[/\\]ctypes[/\\]", frame.source):
            found.add("ctypes")
    if any(_FOREIGN_CALLS.match(name) for name in found):
        found.add("cffi" if any(name.startswith("_cffi") for name in found) else "ctypes")
    return found


def named(found: tuple[Suspect, ...]) -> str:
    """The suspects in a line, the first first."""
    names = [f"{one.name} (on the stack)" if one.on_stack else one.name for one in found]
    return ", ".join(names[:_MOST]) + (f" and {len(names) - _MOST} more" if len(names) > _MOST else "")


def where_it_died(machinery: Machinery) -> Found:
    """The literal fault's place, as evidence: it names nobody who did it."""
    frame = machinery.frame
    name = frame.function or "a function without a name"
    part = f", a part of {machinery.part}" if machinery.part else ""
    module = f" in {file_name(frame.module)}" if frame.module else ""
    return (
        Evidence(
            claim="where it died; the damage may have happened elsewhere",
            seen=f"{name}{module}{part}",
            where=f"frame {frame.index}",
        ),
    )


def only_the_interpreter(crash: Crash) -> bool:
    """Nothing but the interpreter's own native code and the system's was loaded, no ctypes and no cffi among it."""
    return suspects(crash) == () and any(
        is_interpreter(Frame(index=0, kind="native", module=one.path)) for one in crash.modules or ()
    )
