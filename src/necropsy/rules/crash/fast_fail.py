"""Windows ended the process at once, for a reason that a subcode names.

What happened
-------------
The process asked Windows to end it at once (``__fastfail``, the instruction ``int 29h``), because it detected damage
or misuse. The exit status is then always 0xC0000409 (-1073740791), called STATUS_STACK_BUFFER_OVERRUN after its
oldest use. Only a subcode says what happened. Three kinds have their own verdict: a smashed stack (0 and 2), abort()
(7), and a destroyed heap (3 and 50). This page is about all others. With 5, the C runtime refused an argument. With
10 and 64, Control Flow Guard met an invalid function pointer. With 8, a checked index was out of range.

How to be sure
--------------
The subcode is in the exception record and never in the exit status. Event 1001 of *Windows Error Reporting* has it as
exception data (``00000005``). ``.exr -1`` in WinDbg on a dump prints it as ``Subcode``. No handler inside the process
sees a fast-fail, so faulthandler prints nothing.

How to fix it now
-----------------
It depends on the subcode. For 5, check what is done with files, descriptors and formats near the end, such as a
descriptor that is closed twice. For 10, an object or a DLL was used after it was freed, or a callback has the wrong
type. For 8, the stack in a dump names the index. Without a subcode see ``necropsy explain 0xC0000409``. 0xC0000417 is
the same refused argument, raised by older C runtimes as an exception. 0xC0000602 is RaiseFailFastException, which
WinRT, .NET and others use for fatal errors.

How to prevent it
-----------------
Keep dumps (``procdump -ma -e -x . python.exe``, or the registry's LocalDumps), so that the next one has its record.
Test your own extensions with AddressSanitizer and with page heap.

What it is often mistaken for
-----------------------------
A stack overflow: that is 0xC00000FD (-1073741571). A buffer overrun: of 13 public threads with a confirmed cause none
was a proven one, and most were abort() after an error of CUDA or cuDNN.

Sources
-------
- https://learn.microsoft.com/en-us/cpp/intrinsics/fastfail
- https://learn.microsoft.com/en-us/cpp/c-runtime-library/parameter-validation
- https://learn.microsoft.com/en-us/windows/win32/secbp/control-flow-guard
"""

from __future__ import annotations

from necropsy.data import table
from necropsy.frame_filter import noise
from necropsy.model import Crash, Evidence, FastFail, Fix
from necropsy.predicates import bare_name, frames_of, messages, quote
from necropsy.rule import NEVER, Finding, Found, Occurs, Rule, Tried
from necropsy.rules.culprit import culprit_of, python_line
from necropsy.rules.exit_causes import causes_of
from necropsy.rules.windows_loader import RECORD, ended_with, status_of
from necropsy.rules.wording import sentence, who

_STATUS = 0xC0000409
_REFUSED = 0xC0000417
"""STATUS_INVALID_CRUNTIME_PARAMETER: the C runtimes before Windows 8 raise it where later ones fail fast with 5."""
_GAVE_UP = 0xC0000602
"""STATUS_FAIL_FAST_EXCEPTION: RaiseFailFastException without a record of the caller's."""
_INVALID_ARGUMENT = 5
_OF_OTHER_RULES = frozenset({0, 2, 3, 7, 50})
"""A smashed stack, abort(), the heap."""

_PAGE_HEAP = Fix(
    text="Let Windows put a guard page behind every block: then the guilty write itself is what crashes.",
    command="gflags /p /enable python.exe /full",
)
_POINTER = Fix(
    text="Look for an object, a callback or a DLL that is used after it was freed, and for two versions of one DLL: `where NAME.dll`."
)
_FIXES: dict[int, tuple[Fix, ...]] = {
    1: (_POINTER, _PAGE_HEAP),
    4: (Fix(text="Look for code that changes stacks: coroutines, greenlets, fibers, a hook of another program."),),
    5: (
        Fix(
            text="Look at files and descriptors near the end: one that is closed twice, or closed while another thread uses it."
        ),
        Fix(
            text="Look at the arguments of the function above `_invalid_parameter` in the stack: a null pointer, a bad format."
        ),
    ),
    8: (
        Fix(
            text="Check the index or the length that is used where it stopped: an access was outside a std::span or an array."
        ),
    ),
    10: (_POINTER, _PAGE_HEAP),
    18: (Fix(text="Look for a longjmp to a place that has returned, or for a write over its buffer."),),
    21: (Fix(text="Look for a write past a local array, and for software that hooks into the process."),),
    25: (Fix(text="Look for software that changes the tables of loaded DLLs: a virus scanner, an overlay, a hook."),),
    49: (Fix(text="Look for software that changes the tables of loaded DLLs: a virus scanner, an overlay, a hook."),),
    57: (Fix(text="Look for a write past a local array, and for software that hooks into the process."),),
    64: (_POINTER, _PAGE_HEAP),
    65: (Fix(text="Look for a cast to a class that the object is not (static_cast), where it stopped."),),
    71: (Fix(text="Read the report of AddressSanitizer on stderr: it names the access and the block."),),
}


def _match(crash: Crash) -> Finding | None:
    status = crash.exit.ntstatus if crash.exit is not None else None
    if status is None or status_of(crash) != _STATUS:
        return _by_status(crash)
    subcode = status.fast_fail
    if subcode is None or subcode.code in _OF_OTHER_RULES:
        return None
    name, meaning = _known(subcode)
    culprit = culprit_of(crash)
    ended = f"{sentence(who(culprit))} ended the process" if culprit is not None else "The process was ended"
    seen = f"{status.value} with subcode {subcode.code}, {name}"
    return Finding(
        evidence=(
            Evidence(claim="the process ended itself, and the subcode says why", seen=seen, where="exception record"),
            *(_refused(crash) if subcode.code == _INVALID_ARGUMENT else ()),
            *python_line(crash),
        ),
        summary=f"{ended} at once ({name}): {meaning}.",
        confidence="certain" if subcode.code in _FIXES else "likely",
        culprit=culprit,
        title=_TITLES.get(subcode.code),
        fixes=_FIXES.get(subcode.code, (RECORD,)),
    )


def _by_status(crash: Crash) -> Finding | None:
    refused = ended_with(crash, _REFUSED, claim="the C runtime refused an argument")
    said = messages(crash, "crt-invalid-parameter")[-1:]
    refused += tuple(quote(one, "what the C runtime told the handler of crashes") for one in said)
    gave_up = ended_with(crash, _GAVE_UP, claim="the process ended itself by RaiseFailFastException")
    if not refused and not gave_up:
        return None
    culprit = culprit_of(crash)
    name = sentence(who(culprit)) if culprit is not None else "Native code"
    return Finding(
        evidence=(*refused, *gave_up, *(_refused(crash) if refused else ()), *python_line(crash)),
        summary=f"{name} passed an invalid argument to the C runtime, which ended the program."
        if refused
        else f"{name} ended the process by RaiseFailFastException and gave no reason.",
        confidence="certain" if culprit is not None else "likely",
        culprit=culprit,
        title=_TITLES[_INVALID_ARGUMENT] if refused else None,
        fixes=_FIXES[_INVALID_ARGUMENT] if refused else (RECORD,),
        possible=causes_of(crash) if culprit is None else (),
    )


_HANDLERS = ("_invalid_parameter", "_invoke_watson", "invalid_parameter")


def _refused(crash: Crash) -> Found:
    """The C runtime function that rejected its argument, which called the handler."""
    frames = frames_of(crash)[:24]
    for index, frame in enumerate(frames):
        if frame.function is None or not bare_name(frame.function).startswith(_HANDLERS):
            continue
        caller = next((one for one in frames[index + 1 :] if one.function and noise(one) != "cpp-runtime"), None)
        if caller is not None and caller.function is not None and noise(caller) is not None:
            seen = f"{bare_name(caller.function)} in {caller.module or 'the C runtime'}"
            return (Evidence(claim="what refused its argument", seen=seen, where=f"frame {caller.index}"),)
    return ()


_TITLES = {
    5: "The C runtime refused an argument",
    8: "A checked index was out of range",
    10: "A call through a bad function pointer was stopped",
    64: "A call through a bad function pointer was stopped",
}


def _known(subcode: FastFail) -> tuple[str, str]:
    row = table("fast_fail.json")["codes"].get(str(subcode.code), {})
    name = subcode.name or row.get("name") or f"subcode {subcode.code}"
    return name, row.get("meaning") or "what this subcode means is not documented publicly"


RULE = Rule(
    _match,
    title="Windows ended the process at once (fast fail)",
    beats=("exit-status-only", "abort", "python-exception"),
    occurs=Occurs(linux=NEVER, macos=NEVER),
    tried=Tried(
        advice="By the subcode of 0xC0000409, where to look.",
        result="judged only",
        how=("It takes Windows: under wine, on which the tests run, no program ends with these subcodes by itself."),
    ),
    hit="""
        exit status 0xC0000409 subcode 5
    """,
    miss="""
        exit status 0xC0000409 subcode 7
    """,
)
