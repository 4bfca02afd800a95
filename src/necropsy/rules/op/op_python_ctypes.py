"""A call through ctypes loses half of a pointer, or lets a callback be freed.

What happened
-------------
Without ``restype``, ctypes takes what a C function returns for a 32-bit ``int``. Of a pointer the upper half is lost, and the first use of it reads or writes
memory that is not there. A callback object that Python no longer holds is freed; where the library has kept its address, the next call jumps into freed memory.

How to be sure
--------------
Print the pointer: a truncated one is negative or below 4,294,967,296. For callbacks, ``python -X dev`` makes the crash more likely to show at once.

How to fix it now
-----------------
Set ``lib.f.restype = ctypes.c_void_p`` and ``lib.f.argtypes = [...]`` before the first call. Keep a callback in a variable that lives as long as the library may call it: ``self._callback = CALLBACK(f)``.

How to prevent it
-----------------
Declare every function that is used in one place, restype and argtypes together; or use cffi, which reads the declarations of the header.

What it is often mistaken for
-----------------------------
A bug in the library, which works when it is called from C.

Sources
-------
- https://docs.python.org/3/library/ctypes.html#return-types
- https://docs.python.org/3/library/ctypes.html#callback-functions
"""

from __future__ import annotations

from necropsy.model import Environment, Fix, SourceUse
from necropsy.rule import Finding, Rule, several
from necropsy.rules.defects import found_use, place_of_use, uses


def _match(environment: Environment) -> Finding | None:
    return several(_finding(one) for one in uses(environment, "ctypes"))


def _finding(one: SourceUse) -> Finding:
    if one.detail == "not kept alive":
        return found_use(
            one,
            summary=f"{place_of_use(one)} gives `{one.name}` a callback that nothing keeps alive: it is freed after the call.",
            confidence="likely",
            fixes=(Fix(text="Keep the callback in a variable that lives as long as the library may call it."),),
        )
    return found_use(
        one,
        summary=f"{place_of_use(one)} uses what `{one.name}` returns as a pointer, but its restype is not set: half of it is lost.",
        confidence="likely",
        fixes=(Fix(text=f"Before the call: `{one.name}.restype = ctypes.c_void_p`."),),
    )


RULE = Rule(
    _match,
    severity="warning",
    needs=("uses",),
    checks="calls through ctypes",
    hit="""
        use ctypes lib.make_context "detail=no restype"
    """,
    miss="""
        use recursion-limit sys.setrecursionlimit value=1000 stack=8388608
    """,
)
