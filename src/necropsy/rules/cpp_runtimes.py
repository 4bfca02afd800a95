"""Two C++ runtimes in one process, told by what only they can do to each other.

Visual C++: since Visual Studio 2022 17.10 the constructor of ``std::mutex`` only writes zeros, and ``msvcp140.dll`` from 14.40
on expects that. An older one reads a pointer out of the mutex that nobody has written, and follows it. Microsoft documents this
as a consequence of its rule that the runtime must be at least as new as the newest compiler that was used.

libstdc++: ``std::call_once`` leaves the function to call in a thread-local variable of the library, and a stream finds its
facets by an index that the library gave out. With a second copy in the process, one writes and the other one reads.
"""

from __future__ import annotations

import re

from necropsy.model import Crash, Evidence, Fix, Frame
from necropsy.predicates import bare_name, calls, died_by, frames_of, messages, on_windows, quote
from necropsy.rule import Finding, Found
from necropsy.rules.compatibility import version
from necropsy.rules.culprit import culprit_of, python_line

_FIRST_WITH_CONSTEXPR = (14, 40)
_LOCKS = frozenset({"mtx_do_lock", "_Mtx_lock", "_Mtx_trylock", "_Mtx_unlock"})
_NEAR_NULL = 0x1000


def mixed(crash: Crash) -> Finding | None:
    """The verdict on such a process; None where nothing shows it."""
    return _old_visual_runtime(crash) or _two_libstdcxx(crash)


# ---------------------------------------------------------------- Visual C++


def _old_visual_runtime(crash: Crash) -> Finding | None:
    frames = frames_of(crash)
    if not on_windows(crash) or not frames or not (died := died_by(crash, "SIGSEGV")):
        return None
    frame = frames[0]
    address = crash.fault.address if crash.fault is not None else None
    if not _is_msvcp(frame) or (address is not None and int(address) >= _NEAR_NULL):
        return None
    name = bare_name(frame.function) if frame.function else None
    loaded, path, where = _loaded(crash)
    if loaded is not None and loaded >= _FIRST_WITH_CONSTEXPR:
        return None
    # Without the function's name only the version speaks for it: an old copy, and a crash within it.
    if name not in _LOCKS and (loaded is None or name is not None):
        return None
    spelled = ".".join(str(part) for part in loaded) if loaded is not None else None
    which = f"`msvcp140.dll` {spelled}" if spelled else "an old `msvcp140.dll`"
    doing = "was asked to lock a std::mutex" if name in _LOCKS else "crashed"
    caller = culprit_of(crash, frame=frames[1]) if len(frames) > 1 else culprit_of(crash)
    return Finding(
        evidence=(
            *died,
            Evidence(
                claim="where it faulted", seen=f"{name or 'an unnamed function'} in {frame.module}", where="frame 0"
            ),
            *((Evidence(claim="the copy that is loaded", seen=f"{path} {spelled}", where=where),) if spelled else ()),
            *python_line(crash),
        ),
        summary=f"Two versions of the Visual C++ runtime do not fit together: {which} {doing}. Code that was built by Visual "
        "Studio 2022 17.10 or later makes a std::mutex of zeros, and `msvcp140.dll` before 14.40 follows a null pointer in it.",
        confidence="likely",
        culprit=caller,
        title="An old copy of the Visual C++ runtime was loaded first",
        fixes=(
            Fix(
                text="Find the old copy: a package brought it, or the system's is old. Update that package, or delete its copy "
                "so that the system's is used.",
                command='where /R "%VIRTUAL_ENV%" msvcp140.dll& where msvcp140.dll',
            ),
            Fix(
                text="Install the newest Visual C++ Redistributable for 2015 to 2022 (x64).",
                command="winget install Microsoft.VCRedist.2015+.x64",
            ),
            Fix(
                text="As a workaround, import the package that was built later before the one that brings the old copy."
            ),
            Fix(
                text="If the extension is yours: build it with this macro, and it works with older runtimes too.",
                command="cl /D_DISABLE_CONSTEXPR_MUTEX_CONSTRUCTOR ...",
            ),
        ),
    )


def _is_msvcp(frame: Frame) -> bool:
    return frame.module is not None and _file(frame.module).removesuffix(".dll") == "msvcp140"


def _loaded(crash: Crash) -> tuple[tuple[int, ...] | None, str, str]:
    """``msvcp140.dll``'s version and path, and the source: the list of modules or the text."""
    for module in crash.modules or ():
        if _file(module.path) == "msvcp140.dll" and module.version is not None:
            return version(module.version), module.path, "list of modules"
    for name, text in (crash.libraries or {}).items():
        if _file(name) == "msvcp140.dll":
            return version(text), name, "text"
    return None, "", ""


def _file(path: str) -> str:
    return path.replace("\\", "/").rsplit("/", 1)[-1].lower()


# ---------------------------------------------------------------- libstdc++

_ONCE = frozenset({"__pthread_once_slow", "pthread_once", "___pthread_once", "__pthread_once"})
_FACET = re.compile(
    r"std::(?:__cxx11::)?(?:codecvt|ctype|collate|messages|money\w+|time_\w+|num_get|numpunct)<.*>::do_\w+"
)
_INSERTS = re.compile(r"std::(?:basic_)?ostream.*::_M_insert<")
"""Writes a number, using only the facet ``num_put``."""
_FILLS_LOCALE = r"std::locale::_Impl::_M_install_facet"
_ONE_COPY = (
    Fix(
        text="Import the package that brings the newer libstdc++ first, or take both packages from one source (pip or conda) in a fresh "
        "environment.",
        command="python -m venv fresh",
    ),
    Fix(text="If one of them is yours: link libstdc++ dynamically, without -static-libstdc++."),
)


def _two_libstdcxx(crash: Crash) -> Finding | None:
    if (freed := _locale_of_two(crash)) is not None:
        return freed
    frames = frames_of(crash)
    fault = crash.fault
    if fault is None or len(frames) < 3 or not (died := died_by(crash, "SIGSEGV")):
        return None
    names = [frame.function or "" for frame in frames[:6]]
    if fault.access == "exec" and fault.address == 0 and names[1] in _ONCE and "std::call_once" in names[2]:
        place = frames[2]
        seen = "null, called by pthread_once for std::call_once"
        what = "The function that std::call_once was to call is null: one copy of libstdc++ stored it, and another one read it."
    else:
        at = next(
            (
                index
                for index in range(len(names) - 1)
                if _FACET.search(names[index]) and _INSERTS.search(names[index + 1])
            ),
            None,
        )
        if at is None or any(names[:at]):
            return None
        place = frames[at + 1]
        seen = f"{bare_name(names[at])}, called by {bare_name(names[at + 1])}"
        what = "A stream that wrote a number called the wrong facet: one copy of libstdc++ numbered its facets, and another one used the numbers."
    call = Evidence(claim="only another copy of the library makes such a call", seen=seen, where=f"frame {place.index}")
    return _of_two(crash, what, (*died, call))


def _locale_of_two(crash: Crash) -> Finding | None:
    """The start of libstdc++ builds its locale in static memory; what it frees there comes from another copy."""
    said = [one for one in messages(crash, "glibc-abort") if "invalid pointer" in one.text]
    freed = calls(crash, _FILLS_LOCALE, first=8, claim="the start of libstdc++ frees what it has not allocated")
    if not said or not freed:
        return None
    what = "A library started a second copy of libstdc++, which freed a part of the first one's locale."
    return _of_two(crash, what, (quote(said[-1], "the C library's message"), *freed))


def _of_two(crash: Crash, what: str, evidence: Found) -> Finding:
    return Finding(
        evidence=(*evidence, *python_line(crash)),
        summary=what,
        confidence="likely",
        culprit=culprit_of(crash),
        title="Two copies of libstdc++ in one process",
        fixes=_ONE_COPY,
    )
