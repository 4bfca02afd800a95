"""Only an exit status is known.

What happened
-------------
The program ended with a code that is not 0, and nothing else was seen: no signal's details, no stack, no known message in the log. Such a number is a hint at best. Codes above
128 are usually 128 plus the number of a signal, as shells give them; a negative one is a signal, as Python's ``subprocess`` gives it; 1 is what Python gives after an
exception; large numbers that begin with 0xC0000 are Windows'.

How to be sure
--------------
Run it again under ``necropsy run``: then the process is looked at while it dies. ``necropsy explain CODE`` tells what the number can mean.

How to fix it now
-----------------
``necropsy run python train.py``. If it dies elsewhere, where necropsy is not: ``python -X faulthandler train.py`` at least prints the Python lines.

How to prevent it
-----------------
Keep stderr; do not end programs by ``os._exit(n)`` or ``sys.exit(n)`` without a word.

What it is often mistaken for
-----------------------------
A diagnosis. 139 says *a segmentation fault*, not why; 137 does not say *out of memory*; 0xC0000409 hardly ever is a stack overrun.

Sources
-------
- https://www.gnu.org/software/bash/manual/html_node/Exit-Status.html
- https://docs.python.org/3/library/subprocess.html#subprocess.CompletedProcess.returncode
"""

from __future__ import annotations

from necropsy.model import Crash, Culprit, Evidence, Fix
from necropsy.questions import messages, quote, signal_of
from necropsy.rule import Finding, Found, Rule
from necropsy.rules.culprit import spell
from necropsy.rules.python import place_in


def _match(crash: Crash) -> Finding | None:
    if crash.fault is not None:
        return None
    seen = _seen(crash)
    dumps = messages(crash, "faulthandler")
    if seen is None and not dumps:
        return None
    evidence: Found = ()
    if seen is not None:
        evidence = (Evidence(claim="how the process ended", seen=seen, where="exit status"),)
    place = place_in(dumps[-1]) if dumps else None
    if dumps:
        evidence += (quote(dumps[-1], "Python's faulthandler caught a signal"),)
    end = (
        f"The program ended with {seen}{_means(crash)}"
        if seen
        else f"Python's faulthandler saw: {dumps[-1].fields['what']}"
    )
    more = (
        f"; faulthandler shows Python at {spell(place)}, and nothing says why"
        if place
        else "; nothing else was seen that says why"
    )
    return Finding(
        evidence=evidence,
        summary=f"{end}{more}.",
        confidence="possible",
        culprit=Culprit(python=place) if place else None,
        fixes=(_fix(crash),),
    )


def _fix(crash: Crash) -> Fix:
    if any(gap.part == "fault" and "ptrace" in gap.why for gap in crash.gaps):
        # It was run under necropsy, which could not look.
        return Fix(
            text="Let the kernel leave a core, which is then read, or run it where ptrace is free for necropsy.",
            command="ulimit -c unlimited",
        )
    return Fix(
        text="Run it under necropsy, so that the process is looked at while it dies.", command="necropsy run python ..."
    )


def _seen(crash: Crash) -> str | None:
    """The number, in its own spelling; None where it ended well or nobody knows how."""
    end = crash.exit
    if end is None or end.kind not in {"exited", "signaled"} or (end.kind == "exited" and end.code in {None, 0}):
        return None
    if end.ntstatus is not None:
        return f"{end.ntstatus.value} ({end.ntstatus.signed})" + (f", {end.ntstatus.name}" if end.ntstatus.name else "")
    return f"exit code {end.code}" if end.code is not None else f"the signal {end.signal}"


def _means(crash: Crash) -> str:
    end, signal = crash.exit, signal_of(crash)
    if end is None or (end.text is None and (signal is None or end.code is None)):
        return ""
    return f" ({end.text.rstrip('.')})" if end.text else f", which is what a shell gives for {signal}"


RULE = Rule(
    name="exit-status-only",
    subject=Crash,
    title="Only an exit status is known",
    match=_match,
    page=__doc__ or "",
    severity="note",
    hit="""
        exit 139
    """,
    miss="""
        exit 0
    """,
    references=("https://www.gnu.org/software/bash/manual/html_node/Exit-Status.html",),
)
