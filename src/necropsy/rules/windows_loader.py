"""The statuses by which Windows' loader gives up. They say what is wrong, and not which library it is."""

from __future__ import annotations

from necropsy.model import Crash, Fix
from necropsy.rule import Finding
from necropsy.rules.causes import causes_of
from necropsy.rules.windows import ended_with

_NOT_FOUND, _DELAYED, _NOT_FOUND_HRESULT = 0xC0000135, 0xC06D007E, 0x8007007E
_BAD_IMAGE, _BAD_IMAGE_HRESULT = 0xC000007B, 0x800700C1
_ORDINAL, _ENTRY_POINT, _DELAYED_SYMBOL, _SYMBOL_HRESULT = 0xC0000138, 0xC0000139, 0xC06D007F, 0x8007007F
_CLAIM = "the loader of Windows gave up"


def refused_library(crash: Crash) -> Finding | None:
    """A DLL was not found, or is none for this process."""
    missing = ended_with(crash, _NOT_FOUND, _DELAYED, _NOT_FOUND_HRESULT, claim=_CLAIM)
    bad = ended_with(crash, _BAD_IMAGE, _BAD_IMAGE_HRESULT, claim=_CLAIM)
    if not missing and not bad:
        return None
    if bad:
        summary = "A DLL that the program needs is none for it: 32 and 64 bits were mixed, or the file is damaged."
        first = Fix(
            text="Install the package anew for the processor that this Python is built for, without the cache.",
            command="pip install --force-reinstall --no-cache-dir PACKAGE",
        )
    else:
        when = (
            "that is loaded only when it is first used was not found"
            if ended_with(crash, _DELAYED, claim=_CLAIM)
            else "that the program needs was not found, and so it did not start"
        )
        summary = f"A DLL {when}; the status does not say which."
        first = Fix(
            text="Install Microsoft's Visual C++ Redistributable for 2015 to 2022: most often its DLLs are missing."
        )
    all_of_them = Fix(text="See all that is missing at once.", command="dumpbin /dependents FILE.pyd")
    return Finding(
        evidence=missing + bad,
        summary=summary,
        confidence="likely",
        fixes=(first, all_of_them),
        possible=causes_of(crash),
    )


def refused_symbol(crash: Crash) -> Finding | None:
    """A DLL was found, and lacks a function."""
    refused = ended_with(crash, _ORDINAL, _ENTRY_POINT, _DELAYED_SYMBOL, _SYMBOL_HRESULT, claim=_CLAIM)
    if not refused:
        return None
    return Finding(
        evidence=refused,
        summary="A DLL was found, but it lacks a function that is needed: it is of another version than the one that the "
        "program was built with. The status does not say which.",
        confidence="likely",
        fixes=(
            Fix(
                text="Update the library that lacks it, and the package that needs it, to versions that were made for each "
                "other."
            ),
            Fix(text="Another version may be found first: look where it is loaded from.", command="where LIBRARY.dll"),
        ),
        possible=causes_of(crash),
    )
