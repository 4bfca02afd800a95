"""Advice for users who cannot change the code that crashed, because it belongs to a package or framework.

Rules mostly advise the function's authors. Users can check what they pass, work around it, use another version, or
report it: that comes first, and the rest is marked as the authors' task.
"""

from __future__ import annotations

import msgspec

from necropsy.frame_filter import file_name
from necropsy.lazy_re import regex
from necropsy.model import Culprit, Diagnosis, Fix, PythonPlace

_KEEP = "keep every object that {line} hands over, and what it was made from, referenced until the last use"
_SIZES = "compare the sizes, lengths and indices that {line} passes with what it expects, an array for the result (out=) among them"
_SHORTER = (
    "one of the names, paths or lists that {line} passes does not fit into an array of fixed size: pass a shorter one"
)
_FOR_USERS = {
    "null-dereference": "look at what {line} passes: None, something empty, or a handle that was closed or never opened is how "
    "a pointer becomes null",
    "invalid-read": f"{_SIZES}, and {_KEEP.format(line='it')}",
    "invalid-write": _SIZES,
    "heap-buffer-overflow": _SIZES,
    "write-to-readonly": "pass a writable copy (`a.copy()`): arrays over bytes, over a file opened for reading, or made by "
    "broadcasting are read-only",
    "bad-jump": "keep every callback that {line} hands over referenced as long as it may be called",
    "misaligned-access": "pass a copy (`a.copy()`) of each array that is a view into other memory (frombuffer, a field of a "
    "structure, a slice of bytes)",
    "integer-divide-by-zero": "look for a 0 in what {line} passes, as a size, a step or the length of something empty, and reject it before the call",
    "floating-point-trap": "look for a 0, a NaN or a number that is too large in what {line} passes, or switch the traps off "
    "where they were switched on",
    "deliberate-trap": "one of its own checks failed: check what {line} passes for something empty, negative or too large",
    "stack-overflow-recursion": "pass data that is nested less deeply, and reject deeper data before the call; objects that refer "
    "to each other in a chain are nested too",
    "stack-overflow-large-frame": "give the thread a larger stack, or pass smaller inputs",
    "stack-smash": _SHORTER,
    "buffer-overflow-fortify": _SHORTER,
    "double-free": "look whether {line} closes, deletes or frees something for the second time, or on two threads at once",
    "use-after-free": _KEEP,
    "pure-virtual-call": "stop what runs on its threads (close(), shutdown(), join()) before the object or the program ends",
    "python-without-gil": "do not pass it a callback that it calls on its own threads, or make sure that the callback raises nothing",
    "data-race": "call it from one thread at a time, under a lock of your own",
    "abort": "look at what {line} passes, and search its issue tracker for the function's name",
}
"""Rule to what a user of the function can do, after *This is code of ..., not yours:*."""
_AUTHORS = regex(
    r"(?:In|Look in|Make|Let) (?:`|native code)|Find (?:the pointer|who|the other code) |Check every index|"
    r"Compare the size|Read the code of `|Check whether the requested|Check what (?:`|a function of )|Stop and join|"
    r"Put a mutex|If it comes from a call that returns a Status|If (?:the traps are wanted|not, find the code)|"
    r".*rebuild (?:the native code )?with"
)
"""How advice begins that asks for a change of the function itself, or for building it anew."""
_COMPILES = regex(r"(?:g\+\+|gcc|clang(?:\+\+)?|cl) ")


def with_advice_for_users(diagnosis: Diagnosis) -> Diagnosis:
    """The diagnosis; where its culprit is somebody else's code, with what a user of it can do in front."""
    culprit, text = diagnosis.culprit, _FOR_USERS.get(diagnosis.rule)
    if culprit is None or text is None or not diagnosis.fixes:
        return diagnosis
    if culprit.owner in {"interpreter", "system"} or (culprit.owner == "script" and culprit.module is None):
        return _with_callers_advice(diagnosis, culprit, text)
    if culprit.owner not in {"package", "framework"}:
        return diagnosis
    name = _package(culprit)
    users = tuple(fix for fix in diagnosis.fixes if not _is_for_authors(fix))
    authors = tuple(
        msgspec.structs.replace(fix, text=f"For the authors of {name}: {_uncapitalised(fix.text)}")
        for fix in diagnosis.fixes
        if _is_for_authors(fix)
    )
    if not _is_for_authors(diagnosis.fixes[0]):  # it speaks to the user already
        return msgspec.structs.replace(diagnosis, fixes=(*users, *authors))
    first = Fix(text=f"This is code of {name}, not yours: {text.format(line=_line(culprit.python))}.")
    report = Fix(
        text=f"If that is correct, try another version of {name.split()[0]}, and report it there: the report as Markdown "
        "(--format markdown) has what an issue tracker asks for."
    )
    return msgspec.structs.replace(diagnosis, fixes=(first, *users, report, *authors))


_OF_ARGUMENTS = frozenset(
    {
        *("null-dereference", "invalid-read", "invalid-write", "write-to-readonly", "abort"),
        *("integer-divide-by-zero", "stack-overflow-recursion"),
    }
)
"""Verdicts that what was passed to a function of the C library or of Python explains, where it was called directly."""
_MAY_BE_THE_LOOP = _OF_ARGUMENTS - {"integer-divide-by-zero", "stack-overflow-recursion"}
"""Where a function of Python's without a name may be the interpreter's own loop."""
_CHANGES = regex(r"(?:In|Make) `")
"""How advice begins that asks for another function than this one: nobody changes the C library or Python for it."""
_EVALUATES = regex(r"_Py(?:Eval|Frame|Function|Object_Call)|PyEval_|Py_Run")


def _with_callers_advice(diagnosis: Diagnosis, culprit: Culprit, text: str) -> Diagnosis:
    """Users cannot fix the C library or Python, so the advice is on the call; the interpreter loop has no arguments."""
    place, function = culprit.python, culprit.function
    if diagnosis.rule not in _OF_ARGUMENTS or place is None or culprit.nearest:
        return diagnosis
    if function is None and culprit.owner == "interpreter" and diagnosis.rule in _MAY_BE_THE_LOOP:
        return diagnosis
    if _EVALUATES.match(function or "") or not _is_for_authors(diagnosis.fixes[0]):
        return diagnosis
    if culprit.owner == "script" and function is not None:  # it is the line of Python itself that is named
        return diagnosis
    whose = "Python" if culprit.owner == "interpreter" else culprit.module or "the system"
    said = text.format(line=_line(place))
    has_name = function is not None and "+0x" not in function
    named = f"`{(function or '').partition('(')[0]}`" if has_name else "What died"
    tail = f" {named} is part of {whose}, not your code." if culprit.owner != "script" else ""
    first = Fix(text=f"{said[:1].upper()}{said[1:]}.{tail}")
    others = [fix for fix in diagnosis.fixes if culprit.owner == "script" or not _CHANGES.match(fix.text)]
    return msgspec.structs.replace(diagnosis, fixes=(first, *others))


def _is_for_authors(fix: Fix) -> bool:
    return bool(_AUTHORS.match(fix.text) or _COMPILES.match(fix.command or ""))


def _package(culprit: Culprit) -> str:
    if culprit.package is None:
        return culprit.module or "a package"
    return f"{culprit.package} {culprit.version}" if culprit.version else culprit.package


def _line(place: PythonPlace | None) -> str:
    if place is None or not place.file:
        return "your program"
    return f"{file_name(place.file)}:{place.line}" if place.line is not None else file_name(place.file)


def _uncapitalised(text: str) -> str:
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]
