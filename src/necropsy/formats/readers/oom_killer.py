"""Kills because memory ran out, as the kernel's OOM killer, systemd, systemd-oomd and earlyoom log them.

Formats: mm/oom_kill.c (``dump_header``, ``__oom_kill_process``, ``oom_reap_task``) and mm/memcontrol.c of Linux 3.10 to
6.18; systemd's src/oom/oomd-manager.c and src/core/unit.c; earlyoom's kill.c.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from necropsy.formats.lines import Line
from necropsy.formats.text_reports import TextReader, TextReport, is_foreign
from necropsy.lazy_re import regex
from necropsy.model import Crash, Environment, Exit, Message

KIND = "oom-killer"
_REACH = 3000
"""Lines. Between who wanted memory and who was killed stands a table with a line for each process of the machine."""
_WIDEST = 1000
_UNLIMITED = 1 << 50

_SOON = 40
"""Lines between the choice, the kill and the reaper; others may write in between."""

_INVOKED, _KILLED, _REAPER = "invoked oom-killer", "Killed process ", "oom_reaper: "
_VICTIM = regex(r"Killed process (?P<pid>\d{1,10}),? \((?P<program>[^)]{0,60})\)")
_CHOSEN = regex(
    r"(?:Kill process (?=\d)|oom-kill:constraint=\w{1,40}(?P<rest>.{0,700}?),task=(?P<task>[^,]{0,60}),pid=)"
    r"(?P<pid>\d{1,10})(?: \((?P<program>[^)]{0,60})\))?"
)
"""Linux up to 4.20: ``Kill process 4711 (python) score 912 or sacrifice child``, or its child; since 5.0 one line."""
_GROUP = regex(r"oom_memcg=(?P<group>[^,]{1,400})|task_memcg=(?P<task>[^,]{1,400})")
_REAPED = regex(
    r"oom_reaper: (?:reaped|unable to reap) (?:process|pid:?)\s?(?P<pid>\d{1,10}) \((?P<program>[^)]{0,60})\)"
)
_USAGE = regex(r"memory: usage (?P<usage>\d{1,15})kB, limit (?P<limit>\d{1,18})kB, failcnt (?P<failcnt>\d{1,12})")
_EARLYOOM = regex(
    r"sending (?P<signal>SIGTERM|SIGKILL) to process (?P<pid>\d{1,10}) (?:uid \d{1,10} )?\"(?P<program>[^\"]{0,60})\""
)
_OOMD = regex(r"(?:systemd-oomd\S{0,20}: |\] )?Killed (?P<group>/[^ ]{1,300}) due to memory (?:used|pressure)")
_OOMD_UNIT = regex(r"(?P<unit>[\w@.:\\-]{1,100}\.\w{3,8}): systemd-oomd killed (?P<count>\d{1,8}) process")
_UNIT = regex(
    r"(?P<unit>[\w@.:\\-]{1,100}\.\w{3,8}): (?:A process of this unit has been killed by the OOM killer|"
    r"Failed with result 'oom-kill')"
)


@dataclass
class _Kill:
    """One kill, collected line by line. Sizes in bytes."""

    first: int
    last: int
    said: int
    """Index of the line that says it best."""
    pid: int | None = None
    program: str | None = None
    group: str | None = None
    limit: int | None = None
    signal: str | None = None
    fields: dict[str, str] = field(default_factory=dict)


def read(lines: Sequence[Line], index: int) -> TextReport | None:
    """The kill that the line at ``index`` tells of."""
    text = lines[index].text[:_WIDEST]
    kill = _by_user_space(text, index)
    if kill is None and (_INVOKED in text or any(one.search(text) for one in (_CHOSEN, _VICTIM, _REAPED))):
        kill = _by_kernel(lines, index)
    return _piece(lines, kill) if kill is not None else None


# ---------------------------------------------------------------- the kernel


def _by_kernel(lines: Sequence[Line], index: int) -> _Kill | None:
    if (reaped := _REAPED.search(lines[index].text[:_WIDEST])) and _is_told(lines, index, reaped["pid"]):
        return None
    start = _head(lines, index)
    kill = _Kill(first=start, last=index, said=index)
    killed = False
    for at in range(start, min(len(lines), start + _REACH)):
        text = lines[at].text[:_WIDEST]
        if at > start and _INVOKED in text:
            break
        if kill.pid is not None and at > index and at - kill.last > _SOON:
            break
        if match := _USAGE.search(text):
            limit = int(match["limit"]) * 1024
            kill.limit = limit if limit < _UNLIMITED else None
            kill.fields |= match.groupdict()
        elif match := _CHOSEN.search(text):
            if killed:
                break
            _victim(kill, match, at)
            if match["rest"] is not None:
                kill.group = _group(match["rest"])
        elif match := _VICTIM.search(text):
            if killed:
                break
            killed = True
            _victim(kill, match, at)
        elif match := _REAPED.search(text):
            if kill.pid not in {None, int(match["pid"])}:
                break
            if kill.pid is None:
                _victim(kill, match, at)
            kill.last = at
            break
    if kill.pid is not None:
        kill.signal = "SIGKILL"
    elif _INVOKED in lines[start].text:
        kill.said = start
    else:
        return None
    kill.last = max(kill.last, index)
    return kill


def _is_told(lines: Sequence[Line], index: int, pid: str) -> bool:
    above = (_VICTIM.search(line.text[:_WIDEST]) for line in lines[max(0, index - _SOON) : index])
    return any(match is not None and match["pid"] == pid for match in above)


def _head(lines: Sequence[Line], index: int) -> int:
    """Where the line's report begins: not before the end of the one above."""
    start = index
    for at in range(index, max(-1, index - _REACH), -1):
        text = lines[at].text[:_WIDEST]
        if at < index and (_KILLED in text or _REAPER in text):
            break
        if _INVOKED in text:
            return at
        if _CHOSEN.search(text) or _USAGE.search(text):
            start = at
    return start


def _group(rest: str) -> str | None:
    """The control group that was full, else the one that the process was in."""
    found = {name: value for one in _GROUP.finditer(rest) for name, value in one.groupdict().items() if value}
    return found.get("group", found.get("task"))


def _victim(kill: _Kill, match: re.Match[str], at: int) -> None:
    program = match.groupdict().get("task") or match["program"]
    kill.pid, kill.program = int(match["pid"]), program
    kill.said, kill.last = at, max(kill.last, at)


# ---------------------------------------------------------------- user space


def _by_user_space(text: str, index: int) -> _Kill | None:
    if match := _EARLYOOM.search(text):
        kill = _Kill(index, index, index, pid=int(match["pid"]), program=match["program"], signal=match["signal"])
        kill.fields["killer"] = "earlyoom"
        return kill
    if match := _OOMD.search(text):
        return _Kill(index, index, index, group=match["group"], signal="SIGKILL", fields={"killer": "systemd-oomd"})
    if match := _OOMD_UNIT.search(text):
        fields = {"killer": "systemd-oomd", "unit": match["unit"]}
        return _Kill(index, index, index, program=match["unit"], signal="SIGKILL", fields=fields)
    if match := _UNIT.search(text):
        return _Kill(index, index, index, program=match["unit"], signal="SIGKILL", fields={"unit": match["unit"]})
    return None


# ---------------------------------------------------------------- kill -> crash


def _piece(lines: Sequence[Line], kill: _Kill) -> TextReport:
    """What the kill says of a death; of one that does not count (a browser's) only that memory was short."""
    meant = kill.signal is not None and not is_foreign(kill.program)
    line = lines[kill.said]
    fields = dict(kill.fields)
    fields |= {"pid": str(kill.pid)} if kill.pid is not None else {}
    fields |= {"program": kill.program} if kill.program else {}
    fields |= {"signal": kill.signal} if kill.signal else {}
    said = line.text.strip()[:400]
    message = Message(kind="kernel-oom", text=said, where=f"log line {line.number}", line=line.number, fields=fields)
    crash = Crash(messages=(message,))
    if meant:
        crash = Crash(
            pid=kill.pid,
            exit=Exit(kind="signaled", signal=kill.signal, text=_without_time(said)),
            messages=(message,),
            environment=Environment(platform="Linux", executable=kill.program),
            memory_cgroup=kill.group,
            memory_limit=kill.limit,
        )
    return TextReport(KIND, lines[kill.first].number, lines[kill.last].number, crash)


def _without_time(said: str) -> str:
    starts = (said.find(head) for head in ("Memory cgroup out of memory", "Out of memory", "oom-kill:", _KILLED))
    return said[next((start for start in starts if start >= 0), 0) :]


READER = TextReader(
    kind=KIND,
    triggers=(
        _INVOKED,
        _KILLED,
        _REAPER,
        "Kill process ",
        "oom-kill:constraint=",
        "sending SIGTERM to process ",
        "sending SIGKILL to process ",
        " due to memory used (",
        " due to memory pressure for ",
        "systemd-oomd killed ",
        "has been killed by the OOM killer",
        "Failed with result 'oom-kill'",
    ),
    read=read,
    reach=_REACH,
)
