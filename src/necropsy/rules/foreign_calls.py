"""Calls through ctypes whose types are not declared: where memory may have been damaged that others died of later."""

from __future__ import annotations

from necropsy.frame_filter import file_name
from necropsy.model import Crash, Evidence, Fix
from necropsy.rule import Found
from necropsy.rules.machinery import Suspect

_MOST_CALLS = 3


def undeclared(crash: Crash) -> Found:
    """Calls that pass whatever they are given: where the damage may have been done."""
    if not crash.foreign_calls:
        return ()
    shown = [
        f"{one.function} at {file_name(one.source)}:{one.line}"
        + (f" ({file_name(one.library)})" if one.library else "")
        for one in crash.foreign_calls[:_MOST_CALLS]
    ]
    more = len(crash.foreign_calls) - len(shown)
    seen = ", ".join(shown) + (f" and {more} more" if more else "")
    return (Evidence(claim="native code that is called through ctypes without argtypes", seen=seen, where="source"),)


def declare(crash: Crash, loaded: tuple[Suspect, ...] | None) -> tuple[Fix, ...]:
    """Advice on the call that is to be suspected first: into a library of the user's own, or the only native code."""
    own = {one.name for one in loaded or () if one.whose is not None and one.whose.owner == "native-code"}
    calls = list(crash.foreign_calls or ())
    into_own = [one for one in calls if one.library and file_name(one.library) in own]
    is_alone = all(one.whose is None for one in loaded or ())
    if not (first := into_own or (calls if is_alone else [])):
        return ()
    one = first[0]
    return (
        Fix(
            text=f"Check what {file_name(one.source)}:{one.line} passes to {one.function}: each buffer must be as large as "
            f"the function expects, and live as long as it is used. Declare the types before the call:",
            command=f"{one.function}.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ...]",
        ),
    )
