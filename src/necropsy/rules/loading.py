"""What the rules on the dynamic linker share: an import or a load that failed, with the linker's own words."""

from __future__ import annotations

from functools import lru_cache

from necropsy.data import table
from necropsy.model import Confidence, Crash, Message
from necropsy.predicates import messages
from necropsy.rules import failed_loads
from necropsy.rules.aborts import aborted
from necropsy.rules.python import ended_by_exception, last_traceback

_NOT_STARTED = {"0xC0000135", "0xC0000138", "0xC0000139", "0xC000007B", "0xC0000142"}
"""Windows' loader: a DLL not found, an ordinal or a procedure not found in one, not a DLL for this process, DllMain failed."""


def _refused_to_start(crash: Crash, text: str) -> bool:
    """The loader of Windows or macOS gave ``text`` as its reason to end the program."""
    said = next((one for one in crash.messages or () if one.text == text and "loader" in one.fields), None)
    status = crash.exit.ntstatus if crash.exit is not None else None
    return said is not None and (status is None or status.value in _NOT_STARTED)


def _did_not_start(crash: Crash) -> bool:
    """It ended as if rejected by the loader: macOS aborts, Windows has dedicated statuses."""
    end = crash.exit
    if end is None:
        return False
    return end.signal == "SIGABRT" if end.ntstatus is None else end.ntstatus.value in _NOT_STARTED


def ended_by(crash: Crash, text: str) -> Confidence | None:
    """How certain it is that the linker's complaint ``text`` ended the program; None if it certainly did not.

    Programs survive missing optional libraries: only the exception that ended it counts, or, without Python, the
    linker's exit code 127.
    """
    load = next((one for one in crash.messages or () if one.text == text and failed_loads.is_failed_load(one)), None)
    if load is not None:
        return _ended_by_load(crash, load)
    if _refused_to_start(crash, text):
        return "certain" if _did_not_start(crash) else "likely"
    if crash.fault is not None:
        return None
    traceback = last_traceback(crash)
    if traceback is not None:
        said = [traceback.fields.get("text", ""), traceback.fields.get("first_text", "")]
        if any(one and one in text for one in said) and ended_by_exception(crash):
            return "certain" if crash.exit is not None else "likely"
        return "likely" if _failed_before(crash, text) and ended_by_exception(crash) else None
    if crash.exit is None:
        return "possible"
    if crash.exit.kind == "exited" and crash.exit.code == 127:
        return "certain"
    return "possible" if crash.exit.kind == "exited" and crash.exit.code else None


_SAYS_MORE = ("check-failed", "non-ok-status", "assertion", "python-fatal", "cpp-terminate", "pure-virtual")


def _ended_by_load(crash: Crash, load: Message) -> Confidence | None:
    """For an observed failed load: as certain as the program's own message, or that the load came last."""
    grades = [grade for one in failed_loads.told_of(crash, load) if (grade := ended_by(crash, one.text)) is not None]
    if grades:
        return min(grades, key=_ORDER.index)
    if last_traceback(crash) is not None or not failed_loads.was_the_last(load):
        return None
    if aborted(crash):
        says_more = crash.cpp_exception is not None or messages(crash, *_SAYS_MORE)
        return None if says_more else "possible"
    ended = crash.fault is None and crash.exit is not None and crash.exit.kind == "exited"
    return "possible" if ended and crash.exit is not None and crash.exit.code else None


_ORDER: tuple[Confidence, ...] = ("certain", "likely", "possible")
_WRAPPED = ("ImportError", "ModuleNotFoundError", "NameError", "AttributeError", "RuntimeError", "OSError")
"""What a program runs into that goes on after an import that failed: the name or the module is not there."""


def _failed_before(crash: Crash, text: str) -> bool:
    """An earlier, survived traceback in the output ended with ``text``."""
    tracebacks = messages(crash, "python-traceback")
    last = tracebacks[-1].fields.get("exception", "").rsplit(".", 1)[-1]
    earlier = [one.fields.get("text", "") for one in tracebacks[:-1]]
    return last in _WRAPPED and any(one and one in text for one in earlier)


@lru_cache(maxsize=1)
def _words() -> tuple[tuple[str, int], ...]:
    rows = table("windows_words.toml")["error"]
    return tuple((word.lower(), row["code"]) for row in rows for word in row["words"])


NO_PAGE_FILE = 1455
"""ERROR_COMMITMENT_LIMIT: the library is there, memory is not."""


def windows_error(message: Message) -> int | None:
    """The Windows error in a loader message, as a number or translated text; statuses (negative, > 0xFFFF) are kept."""
    code = message.fields.get("code", "")
    if code:
        return int(code, 0)
    said = f"{message.fields.get('text', '')} {message.text}".lower()
    return next((number for word, number in _words() if word in said), None)
