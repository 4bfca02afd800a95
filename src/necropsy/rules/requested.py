"""Programs that somebody asked to end, and whose threads were read at that signal: who asked, and where they stood."""

from __future__ import annotations

from necropsy.model import Confidence, Crash, Culprit, Evidence, Fix, Frame, Stack, StopRequest
from necropsy.predicates import SIGNALS, died_by, name_of, on_windows, process_in_words, signal_of
from necropsy.rule import Finding, Found
from necropsy.rules.culprit import own_place, spell
from necropsy.rules.standing import all_wait_for_locks, culprit, doing, in_order, stands
from necropsy.rules.wording import sentence

_SOON_S = 1.0
"""What follows within a second follows at once."""


def request_of(crash: Crash) -> StopRequest | None:
    """Who asked it to end, where its threads were read then; of SIGQUIT it dies with a core, and is read anyway."""
    fault = crash.fault
    if crash.stop_request is not None or fault is None or fault.signal != "SIGQUIT" or not crash.threads:
        return crash.stop_request
    if fault.sent_by_itself is True or fault.handled_first or crash.exit is None:
        return None
    return StopRequest(
        signal=fault.signal, sender=fault.sender, sender_command=fault.sender_command, handled=False, at=crash.at
    )


def match(crash: Crash) -> Finding | None:
    """The program ended because of that signal, by it or by an exit code; not by SIGKILL, which has its own sender."""
    asked, signal = request_of(crash), signal_of(crash)
    in_handler = crash.fault is not None and crash.fault.handled_first
    if asked is None or in_handler or signal == "SIGKILL" or (crash.fault is not None and signal != asked.signal):
        return None
    code = crash.exit.code if crash.exit is not None and crash.exit.kind == "exited" else None
    if signal is not None and signal != asked.signal and code is None:
        return None
    confidence: Confidence = "certain" if signal == asked.signal else "likely"
    return Finding(
        evidence=(*evidence(crash), *died_by(crash, asked.signal), *_exit(code, signal), *_stands(crash, asked)),
        summary=f"{standing(crash, asked)}, {_ended(asked, code)}.{_locked(crash)}",
        confidence=confidence,
        culprit=stood_at(crash),
        fixes=_fixes(crash, asked),
    )


def before_a_kill(crash: Crash) -> tuple[str, Found]:
    """What to add where SIGKILL ended it: that it had been asked before; a sentence, empty where it had not."""
    asked = crash.stop_request
    if asked is None or signal_of(crash) != "SIGKILL":
        return "", ()
    after = (
        f"{asked.seconds:,.0f} s" if asked.seconds is not None and asked.seconds >= _SOON_S else "less than a second"
    )
    text = f" {standing(crash, asked)}; SIGKILL came {after} later.{_locked(crash)}"
    return text, (*evidence(crash), *_stands(crash, asked))


def where_it_stood(crash: Crash) -> Found:
    """Where each thread was at that signal; empty where nobody asked."""
    asked = request_of(crash)
    return _stands(crash, asked) if asked is not None else ()


def stood_at(crash: Crash) -> Culprit | None:
    """The function and the line at which the main thread was."""
    return culprit(in_order(crash)[0]) if crash.threads else None


def standing(crash: Crash, asked: StopRequest) -> str:
    """``The main thread was at train.py:9 in main (it sleeps) when process 17 (timeout 5) sent SIGTERM``."""
    by = _by(asked)
    if not crash.threads:
        return f"{sentence(by)} sent {asked.signal}"
    main = in_order(crash)[0]
    place = own_place(main)
    does = doing(main)
    at = f"was at {spell(place)} (it {does})" if place is not None else does
    came = f"when {by} sent {asked.signal}" if asked.sender is not None else f"when {asked.signal} came from {by}"
    return f"{sentence(name_of(main, crash))} {at} {came}"


def evidence(crash: Crash) -> Found:
    """Who asked."""
    asked = request_of(crash)
    if asked is None:
        return ()
    handler = "" if asked.handled is None else f"; the program has {'a' if asked.handled else 'no'} handler for it"
    seen = f"{asked.signal}, sender: {_by(asked)}{handler}"
    return (Evidence(claim="the program was asked to end", seen=seen, where="signal information"),)


def _by(asked: StopRequest) -> str:
    if asked.sender is None:
        return "the kernel, at the limit of its CPU time" if asked.signal == "SIGXCPU" else "the terminal"
    if not asked.sender:
        return "a process that cannot be seen from here"
    return process_in_words(asked.sender, asked.sender_command)


def _stands(crash: Crash, asked: StopRequest) -> Found:
    return stands(crash, f"stacks when {asked.signal} came")


def _exit(code: int | None, signal: str | None) -> Found:
    if code is None or signal is not None:
        return ()
    return (Evidence(claim="it ended after that with an exit code", seen=f"exit code {code}", where="exit status"),)


def _ended(asked: StopRequest, code: int | None) -> str:
    after = f" {asked.seconds:,.0f} s later" if asked.seconds is not None and asked.seconds >= _SOON_S else ""
    if code is None:
        return f"which ended the program{after}"
    meaning = " (128 + its number)" if SIGNALS.get(code - 128) == asked.signal else ""
    return f"and the program ended with exit code {code}{meaning}{after}"


def _locked(crash: Crash) -> str:
    count = all_wait_for_locks(crash)
    return f" All {count} threads that run Python were waiting for locks: this looks like a deadlock." if count else ""


def _fixes(crash: Crash, asked: StopRequest) -> tuple[Fix, ...]:
    place = own_place(in_order(crash)[0]) if crash.threads else None
    look = f"Look at {spell(place)}" if place is not None else "Check what each thread was doing"
    return (
        Fix(text=f"{look}: was it slow there, or did it hang? If it only needs longer, raise the sender's time limit."),
        Fix(text=f"Save the work on {asked.signal} (`signal.signal`), and resume from the last checkpoint."),
    )


# How much stack one call asked for, where Windows ended it amid of asking.
#
# A function with a frame of a page or more calls ``__chkstk`` first (MinGW: ``___chkstk_ms``), which touches the pages of
# the frame one by one from above, so that the guard page is hit in order (Microsoft Learn, *Prolog and epilog*; GCC's
# ``libgcc/config/i386/cygwin.S``). The stack pointer is moved afterwards.
_FAR = 64 << 10
"""Bytes below the stack pointer: what pushes and small frames touch is nearer."""
_IMPOSSIBLE = 1 << 40
"""Bytes: no stack is so large, so that the register held something else."""


def asked_at_once(crash: Crash, stack: Stack, largest: Frame | None) -> int | None:
    """Bytes that one call requested on Windows, if the touched page is far below the stack pointer.

    None if a frame gives them, or the page is near. MinGW's helper keeps the remaining bytes in rax, Microsoft's all of
    them; for other instructions only the distance is known.
    """
    address, pointer = crash.fault.address if crash.fault is not None else None, stack.pointer
    if address is None or pointer is None or pointer - address < _FAR or not on_windows(crash):
        return None
    text = crash.instruction.text if crash.instruction is not None else None
    told = (crash.registers or {}).get("rax", 0)
    if text == "or qword ptr [rcx], 0":
        told += pointer - address
    elif text not in {"mov byte ptr [r11], 0", "test byte ptr [r11], r11b"}:
        told = 0
    asked = told if pointer - address <= told < _IMPOSSIBLE else pointer - address
    return asked if largest is None or (largest.stack_bytes or 0) < asked else None
