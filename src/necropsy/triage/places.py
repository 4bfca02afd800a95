"""Physical frames: one for each call that the machine made, with everything that it may be called in another build."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from necropsy.frame_filter import file_name, is_loop, is_system, noise
from necropsy.lazy_re import regex
from necropsy.model import Frame
from necropsy.triage.deaths import FramePlace
from necropsy.triage.documents import Call, Mapped
from necropsy.triage.names import of_function, of_template

DEPTH = 6
"""How many frames a fingerprint keeps."""
_OFFSET = regex(r"(?P<module>.+)\+(?P<offset>0x[0-9a-f]+)$")
_MESSENGER = regex(
    r"(?:\w*_)?(?:check_?fail(?:ed|ure)?|assert(?:ion)?_?fail(?:ed|ure)?|fail_?(?:check|assert)\w*|throw_\w+|raise_\w*error|fatal(?:_error)?|panic|die|"
    r"abort_\w+|LogFatal|LogMessageFatal|~LogMessageFatal|CheckFail(?:ed|ure)?|CheckOp\w*|Fatal(?:Error)?|ThrowError|Throw[A-Z]\w*|Abort[A-Z]\w*)$"
)
"""Functions of a program that only report what others found. They count as such where the process ended itself."""
_PASSING = frozenset({"abort", "logging", "cpp-runtime", "allocator", "string", "start", "dispatch", "binding"})


def places(calls: Sequence[Call], modules: Sequence[Mapped], *, ended_itself: bool) -> tuple[FramePlace, ...]:
    """The program's own frames, innermost first, at most ``DEPTH``; not those that only report (``check_failed``)."""
    ids = build_ids(modules)
    groups = _physical(calls)
    own = [group for group in _outside_of_python(groups) if _is_own(group)]
    found = [_place(group, ids) for group in own]
    if not found:  # nothing of the program's: then the framework's or whatever has a name
        found = [_place(group, ids) for group in _outside_of_python(groups) if _may_count(group)]
    if ended_itself:
        kept = [one for one in found if not _reports(one)]
        found = kept or found
    return tuple(found[:DEPTH])


def build_ids(modules: Iterable[Mapped]) -> dict[str, str]:
    """By the file names of modules."""
    return {file_name(one.path.removesuffix(" (deleted)")): one.build_id for one in modules if one.build_id}


def period(functions: Sequence[str], modules: Sequence[str | None], ids: dict[str, str]) -> tuple[FramePlace, ...]:
    """The functions that repeat, sorted: where a recursion begins and ends is chance."""
    found = {}
    for function, module in zip(functions, modules or (None,) * len(functions), strict=False):
        placed = _OFFSET.match(function)
        call = Call(
            function=None if placed else function,
            module=placed["module"] if placed else module,
            module_offset=placed["offset"] if placed else None,
        )
        if _is_own([call]):
            one = _place([call], ids)
            found[one.names, one.qualified, one.module, one.offset] = one
    return sorted_places(found.values())


def sorted_places(them: Iterable[FramePlace]) -> tuple[FramePlace, ...]:
    """In an order that depends on nothing but themselves."""
    return tuple(sorted(them, key=lambda one: (one.names, one.qualified, one.module or "", one.offset or "")))


def _physical(calls: Sequence[Call]) -> list[list[Call]]:
    """Calls that were inlined into each other, together, innermost first.

    They share an address. A debugger prints none for the function into which the call before was inlined.
    """
    has_addresses = any(call.address is not None for call in calls)
    groups: list[list[Call]] = []
    for call in calls:
        last = groups[-1][-1] if groups else None
        if last is None:
            groups.append([call])
        elif call.address is None:
            inlined = (
                has_addresses and call.found_by == "text" and call.function is not None and call.source is not None
            )
            groups[-1].append(call) if inlined else groups.append([call])
        elif call.address == last.address and call.function != last.function and not last.stack_bytes:
            groups[-1].append(call)
        else:
            groups.append([call])
    return groups


@lru_cache(maxsize=65536)
def _kind(function: str | None, module: str | None, source: str | None) -> str | None:
    """What noise a frame is, if any. The frames of a fleet are few different ones."""
    return noise(Frame(index=0, kind="native", function=function, module=module, source=source))


@lru_cache(maxsize=65536)
def _is_loop(function: str | None, module: str | None, source: str | None) -> bool:
    return is_loop(Frame(index=0, kind="native", function=function, module=module, source=source))


@lru_cache(maxsize=4096)
def _is_system(module: str) -> bool:
    return is_system(Frame(index=0, kind="native", module=module))


def _noise(call: Call) -> str | None:
    return _kind(call.function, call.module, call.source)


def _outside_of_python(groups: list[list[Call]]) -> list[list[Call]]:
    for position, group in enumerate(groups):
        if any(_is_loop(call.function, call.module, call.source) for call in group):
            return groups[:position]
    return groups


def _is_own(group: Sequence[Call]) -> bool:
    """Of the program or of a package: decided by the library, whatever the function's name is."""
    outer = group[-1]
    if outer.owner in {"system", "interpreter"}:
        return False
    if outer.module is None and outer.function is None:
        return False  # the target of a bad jump: no code
    if outer.module is None:
        return any(_noise(call) is None for call in group)
    if _is_system(outer.module):
        return False
    kinds = {_noise(call) for call in group}
    return None in kinds or not kinds & _PASSING


def _may_count(group: Sequence[Call]) -> bool:
    return any(call.function is not None and _noise(call) not in _PASSING for call in group)


def _place(group: Sequence[Call], ids: dict[str, str]) -> FramePlace:
    outer = group[-1]
    named: dict[str, str] = {}
    empty = []
    lines = []
    for call in group:
        if call.function is None:
            continue
        of_library = _is_of_library(call, is_inlined=call is not outer)
        if call.source is not None and call.line is not None and not _has_line_of_library(call):
            lines.append(f"{file_name(call.source)}:{call.line}")
        name = of_template(call.function) if of_library else of_function(call.function)
        if name is None:
            empty.append(call.function)
            continue
        known = named.get(name[0])
        if known is None or len(name[1]) > len(known):
            named[name[0]] = name[1]
    module = file_name(outer.module) if outer.module is not None else None
    return FramePlace(
        names=tuple(named),
        qualified=tuple(named.values()) or tuple(dict.fromkeys(empty))[:1],
        module=module,
        build_id=ids.get(module) if module is not None else None,
        offset=outer.module_offset,
        lines=tuple(dict.fromkeys(lines)),
    )


def _is_of_library(call: Call, *, is_inlined: bool) -> bool:
    """A template of the C++ library, wherever it was compiled.

    The name of an inlined one may lack its namespace, so its source decides. A function into which such a template was
    inlined can have the same source.
    """
    return _kind(call.function, call.module, call.source if is_inlined else None) == "cpp-library"


def _has_line_of_library(call: Call) -> bool:
    """Its line is that of a template which was inlined into it, and which debug information does not name."""
    return call.source is not None and _kind("f", call.module, call.source) == "cpp-library"


def _reports(place: FramePlace) -> bool:
    return bool(place.names) and all(_MESSENGER.match(name) for name in place.names)
