"""Windows loader statuses, which say what is wrong but not with which library.

Only a delayed load tells more: the linker's helper raises an exception whose record points to the names of the DLL and
the function (delayimp.h, ``DelayLoadInfo``).
"""

from __future__ import annotations

from necropsy.model import Confidence, Crash, Evidence, Fix, Message
from necropsy.predicates import messages, on_windows, quote
from necropsy.rule import NOTHING, Finding, Found
from necropsy.rules import compatibility, quoting
from necropsy.rules.culprit import culprit_of, python_line
from necropsy.rules.exit_causes import causes_of
from necropsy.rules.wording import who

_NOT_FOUND, _DELAYED, _NOT_FOUND_HRESULT = 0xC0000135, 0xC06D007E, 0x8007007E
_BAD_IMAGE, _BAD_IMAGE_HRESULT = 0xC000007B, 0x800700C1
_ORDINAL, _ENTRY_POINT, _DELAYED_SYMBOL, _SYMBOL_HRESULT = 0xC0000138, 0xC0000139, 0xC06D007F, 0x8007007F
_CLAIM = "the Windows loader stopped the program"


_REDISTRIBUTABLE = Fix(
    text="Install Microsoft's Visual C++ Redistributable for 2015 to 2022: most often its DLLs are missing."
)


def delayed(crash: Crash, kind: str) -> tuple[Message, Confidence] | None:
    """What a delayed load did not find, ``delay-load-module`` or ``delay-load-procedure``, and how sure it ended the program."""
    found = messages(crash, kind)
    if not found:
        return None
    ended = ended_with(crash, _DELAYED if kind == "delay-load-module" else _DELAYED_SYMBOL, claim=_CLAIM)
    return found[-1], "certain" if ended else "possible"


def delayed_library(crash: Crash) -> Finding | None:
    """A DLL that is loaded when it is first used was not found."""
    found = delayed(crash, "delay-load-module")
    if found is None:
        return None
    message, confidence = found
    dll, wanted = message.fields.get("dll", "a DLL"), message.fields.get("procedure")
    culprit = culprit_of(crash)
    for_what = f", for its function `{wanted}`" if wanted else ""
    row = compatibility.package_of(dll) or {}
    first = Fix(text=row["why"]) if row.get("why") else Fix(text=f"Install the package that brings `{dll}`.")
    return Finding(
        evidence=(
            quote(message, "what was looked for when it was first used"),
            *ended_with(crash, _DELAYED, claim=_CLAIM),
            *python_line(crash),
        ),
        summary=f"The DLL `{dll}` is loaded only when it is first used, and was not found when {who(culprit)} needed it{for_what}.",
        confidence=confidence,
        culprit=culprit,
        fixes=(
            first,
            Fix(
                text="Or put its folder on PATH, before the program starts; Python from 3.8 on asks for os.add_dll_directory().",
                command=f"where {quoting.windows(dll, 'DLL')}",
            ),
        ),
    )


def delayed_symbol(crash: Crash) -> Finding | None:
    """A DLL that is loaded when it is first used was found, and lacks the function."""
    found = delayed(crash, "delay-load-procedure")
    if found is None:
        return None
    message, confidence = found
    dll, wanted = message.fields.get("dll", "a DLL"), message.fields.get("procedure")
    culprit = culprit_of(crash)
    return Finding(
        evidence=(
            quote(message, "what was looked for when it was first used"),
            *ended_with(crash, _DELAYED_SYMBOL, claim=_CLAIM),
            *python_line(crash),
        ),
        summary=f"The DLL `{dll}` was found, but it lacks {f'the function `{wanted}`' if wanted else 'a function'} that {who(culprit)} "
        "needs: it is of another version than the one that the program was built with.",
        confidence=confidence,
        culprit=culprit,
        fixes=(
            Fix(
                text="Another version may be found first: look which copies there are, and keep the one that the package brings.",
                command=f"where {quoting.windows(dll, 'DLL')}",
            ),
            Fix(
                text="Update the library that lacks it, and the package that needs it, to versions that were made for each other."
            ),
        ),
    )


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
        first = _REDISTRIBUTABLE
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


def status_of(crash: Crash) -> int | None:
    """The 32-bit status that the process ended with; None where it was none."""
    status = crash.exit.ntstatus if crash.exit is not None else None
    return int(status.value, 16) if status is not None else None


def ended_with(crash: Crash, *statuses: int, claim: str) -> Found:
    """The process ended with one of these statuses."""
    status = crash.exit.ntstatus if crash.exit is not None else None
    if status is None or int(status.value, 16) not in statuses:
        return NOTHING
    seen = f"{status.value} ({status.signed})" + (f", {status.name}" if status.name else "")
    where = "exit status" if crash.crashed_thread is None else "exception record"
    return (Evidence(claim=claim, seen=seen, where=where),)


def sanitizer_of(crash: Crash) -> str:
    """How native code is built with AddressSanitizer where it died: Microsoft's compiler has it too."""
    return _CL if on_windows(crash) else _GCC


_CL = "cl /fsanitize=address /Zi ..."
_GCC = "g++ -g -O1 -fsanitize=address -fno-omit-frame-pointer ..."

RECORD = Fix(
    text="Windows keeps a record of it (Event Viewer, Windows Logs, Application): event 1000 names the library and the place "
    "in it, event 1001 has the subcode of 0xC0000409 as exception data.",
    command="wevtutil qe Application /c:4 /rd:true /f:text "
    "/q:\"*[System[Provider[@Name='Application Error' or @Name='Windows Error Reporting']]]\"",
)
