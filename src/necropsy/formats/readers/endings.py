"""How a process ended: sentences of one line by the table ``data/endings.toml``, and what takes several lines.

These are containers' states, a shell's ``echo $?`` and Lambda's report. Forms: Docker's API (``State``), Kubernetes'
API (``ContainerStateTerminated``) in YAML, JSON, Python's client and ``kubectl describe``; AWS' documentation of
Lambda's log; Nextflow's error report.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from necropsy.formats import exit_phrases
from necropsy.formats.exit_status import exit_of, signal_name
from necropsy.formats.lines import Line
from necropsy.formats.text_reports import TextReader, TextReport
from necropsy.lazy_re import regex
from necropsy.model import Exit, Message

KIND = "ending"
_NEAR = 12
"""Lines around an exit code in which the rest of its state stands."""
_FAR = 30

_CODE = regex(
    r"[\"']?(?:[eE]xit[cC]ode|exit_code|Exit Code)[\"']?\s{0,4}[:=]\s{0,12}[\"']?(?P<code>-?\d{1,10})(?![\d.:])"
)
_REASON = regex(r"[\"']?\b[rR]eason[\"']?\s{0,4}[:=]\s{0,12}[\"']?(?P<reason>[A-Z]\w{2,40})")
_SIGNAL = regex(r"[\"']?\b[sS]ignal[\"']?\s{0,4}[:=]\s{0,12}[\"']?(?P<signal>[1-9]\d?)\b")
_OOM = regex(r"[\"']?OOMKilled[\"']?\s{0,4}[:=]\s{0,4}(?P<said>true|false)\b")
_RUNNING = regex(r"[\"']Running[\"']\s{0,4}:\s{0,4}true\b")
_LIMIT = regex(r"[\"']?\bmemory[\"']?\s{0,4}[:=]\s{0,12}[\"']?(?P<limit>\d{1,12}[KMGT]i?)\b")
_LIMITS = regex(r"[\"']?\b[lL]imits[\"']?\s{0,4}[:=]")
_WHY = {"OOMKilled": "memory", "DeadlineExceeded": "time", "Evicted": "memory-limit", "Preempted": "preempted"}

_ASKED = regex(r"(?:\$LASTEXITCODE|%ERRORLEVEL%|%errorlevel%|\becho \$\?|\becho \$status)\s{0,4};?$")
_NUMBER = regex(r"(?P<code>-?\d{1,10})$")
_COMMAND_STATUS = regex(r"Command exit status:\s{0,4}$")
_LAMBDA = regex(r"Memory Size: (?P<size>\d{1,6}) MB\s{1,4}Max Memory Used: (?P<used>\d{1,6}) MB")


def _around(lines: Sequence[Line], index: int, reach: int, stop: re.Pattern[str]) -> Iterator[tuple[Line, str]]:
    """The line and those around it, nearest first, up to the next one of the same kind."""
    yield lines[index], lines[index].text
    for step in (-1, 1):
        for position in range(index + step, index + step * (reach + 1), step):
            if not 0 <= position < len(lines) or stop.search(lines[position].text):
                break
            yield lines[position], lines[position].text


def _state(lines: Sequence[Line], index: int) -> TextReport | None:
    code = _CODE.search(lines[index].text)
    if code is None:
        return None
    near = list(_around(lines, index, _NEAR, _CODE))
    reason = next(((line, found) for line, text in near if (found := _REASON.search(text))), None)
    oom = next(((line, found) for line, text in near if (found := _OOM.search(text))), None)
    if any(_RUNNING.search(text) for _, text in near):
        return None
    signal = next((found["signal"] for _, text in near if (found := _SIGNAL.search(text))), None)
    number = int(code["code"])
    if number == 0 and not (oom and oom[1]["said"] == "true") and not (reason and reason[1]["reason"] in _WHY):
        return None
    is_docker = oom is not None
    if reason is None and not is_docker and not _is_key(lines[index].text):
        return None
    by = "Docker" if is_docker else "Kubernetes"
    why, said = _why(reason, oom)
    text = lines[index].text.strip().rstrip(",")
    if reason is not None and reason[0] is not lines[index]:
        text = f"{reason[0].text.strip().rstrip(',')} {text}"
    end = _end(code["code"], signal, why, text)
    if end is None:
        return None
    message = exit_phrases.told(said, by, why) if said is not None else None
    shown = [lines[index], *(one for one in (said, reason[0] if reason else None) if one is not None)]
    return TextReport(
        KIND,
        min(line.number for line in shown),
        max(line.number for line in shown),
        exit_phrases.dead(
            end,
            memory_limit=_limit(lines, index) if why == "memory" else None,
            messages=_only(message),
        ),
    )


def _is_key(text: str) -> bool:
    """The exit code is a field of its own: of a YAML or JSON document, or of a described object."""
    return bool(re.match(r"\s{0,60}[\"']?(?:exitCode|exit_code|Exit Code|ExitCode)[\"']?\s{0,4}:", text))


def _why(
    reason: tuple[Line, re.Match[str]] | None, oom: tuple[Line, re.Match[str]] | None
) -> tuple[str | None, Line | None]:
    if oom is not None:
        return ("memory" if oom[1]["said"] == "true" else "not-memory"), oom[0]
    if reason is not None and reason[1]["reason"] in _WHY:
        return _WHY[reason[1]["reason"]], reason[0]
    return None, None


def _end(code: str, signal: str | None, why: str | None, text: str) -> Exit | None:
    if signal is not None:
        return Exit(kind="signaled", signal=signal_name(int(signal)), text=text)
    if why == "memory" and int(code) == 0:
        return Exit(kind="signaled", signal="SIGKILL", text=text)
    reading = exit_phrases.reading_of(code)
    return exit_of(reading, text) if reading is not None else None


def _limit(lines: Sequence[Line], index: int) -> int | None:
    """The container's memory limit, which ``kubectl describe`` and the API's documents show below its state."""
    for position in range(index, min(len(lines), index + _FAR)):
        if _LIMITS.search(lines[position].text):
            for line in lines[position : position + 4]:
                if match := _LIMIT.search(line.text):
                    return exit_phrases.octets(match["limit"])
    return None


def _asked(lines: Sequence[Line], index: int) -> TextReport | None:
    """A user asked a shell how the last command ended; the answer is the next line."""
    if not _ASKED.search(lines[index].text.rstrip()):
        return None
    windows = "ERRORLEVEL" in lines[index].text.upper() or "LASTEXITCODE" in lines[index].text
    for line in lines[index + 1 : index + 3]:
        if match := _NUMBER.match(line.text.strip()):
            return _numbered(lines[index], line, match["code"], windows=windows)
        if line.text.strip():
            return None
    return None


def _command_status(lines: Sequence[Line], index: int) -> TextReport | None:
    if not _COMMAND_STATUS.search(lines[index].text):
        return None
    for line in lines[index + 1 : index + 3]:
        if match := _NUMBER.match(line.text.strip()):
            return _numbered(lines[index], line, match["code"], windows=False)
    return None


def _numbered(asked: Line, answer: Line, code: str, *, windows: bool) -> TextReport | None:
    reading = exit_phrases.reading_of(code, windows=windows)
    if reading is None:
        return None
    end = exit_of(reading, f"{asked.text.strip()[-80:]} {code}")
    return TextReport(KIND, asked.number, answer.number, exit_phrases.dead(end))


def _lambda(lines: Sequence[Line], index: int) -> TextReport | None:
    """AWS Lambda counts the memory of each call: all of it was used, and the call was killed."""
    line = lines[index]
    match = _LAMBDA.search(line.text)
    if match is None or int(match["used"]) < int(match["size"]):
        return None
    killed = next((text for _, text in _around(lines, index, _FAR, _LAMBDA) if "signal: killed" in text), None)
    if killed is None:
        return None
    message = exit_phrases.told(line, "AWS Lambda", "memory")
    crash = exit_phrases.dead(
        Exit(kind="signaled", signal="SIGKILL", text=killed.strip()[:200]),
        memory_limit=int(match["size"]) << 20,
        messages=_only(message),
    )
    return TextReport(KIND, line.number, line.number, crash)


def _only(message: Message | None) -> tuple[Message, ...] | None:
    return (message,) if message is not None else None


def _sentence(lines: Sequence[Line], index: int) -> TextReport | None:
    line = lines[index]
    found = exit_phrases.found_in(line)
    if found is None:
        return None
    form, match, end = found
    return TextReport(KIND, line.number, line.number, exit_phrases.crash_of(form, match, end, line))


READERS = (
    TextReader(KIND, tuple(dict.fromkeys(form.must for form in exit_phrases.forms())), _sentence, reach=0),
    TextReader(KIND, ("xitCode", "exit_code", "Exit Code"), _state, reach=_FAR),
    TextReader(KIND, ("$LASTEXITCODE", "%ERRORLEVEL%", "%errorlevel%", "echo $?", "echo $status"), _asked, reach=3),
    TextReader(KIND, ("Command exit status:",), _command_status, reach=3),
    TextReader(KIND, ("Max Memory Used: ",), _lambda, reach=_FAR),
)
