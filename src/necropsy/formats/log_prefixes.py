"""Removes what log collectors put before each line, so that it begins as the program wrote it.

A wrapper is removed by its own pattern, anchored at the line's start; those that a program could have written itself
(``0: ``, ``> ``) only where nearly all lines have them. A framework's own envelope
(``2026-11-20 21:17:51.617250: F file.cc:42] ``) stays: ``formats.lines`` reads it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

_DEPTH = 4
"""Wrappers around wrappers that are taken off: docker compose's around Ray's around torchrun's."""
_TIME = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_ZONE = r"(?: ?(?:Z|UTC|GMT|[+-]\d\d:?\d\d))?"
_DATE = r"\d{4}-\d\d-\d\d"
_ISO = _DATE + "T" + _TIME + _ZONE
_LEVEL = r"(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)"
_WRITER = r"(?P<who>[\w./@-]{1,64}(?:\[[\w.-]{1,20}\])?)"
_END = r"(?:[ \t]|$)"


@dataclass(frozen=True)
class Wrapper:
    """One form; ``begins``: its possible first characters; its group ``who`` names the writer.

    ``share`` is the part of a text's lines that must have it, 0 for an unmistakable one.
    """

    name: str
    begins: str
    expression: str
    share: float = 0.0

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Compiled when a line first begins like it: a process that is dying waits for its log to be read."""
        return re.compile(self.expression)


_DIGITS = "0123456789"
_UPPER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LOWER = _UPPER.lower()
_WRAPPERS = (
    # journalctl -o short-iso, rsyslog's ISO form, Heroku's `app[web.1]: `.
    Wrapper(
        "syslog-iso",
        _DIGITS,
        rf"{_ISO} (?:[\w.-]{{1,64}} )?(?P<who>[\w./@-]{{1,64}}\[[\w.-]{{1,20}}\]|kernel|systemd):{_END}",
    ),
    # GitHub Actions, `docker logs -t`, `kubectl logs --timestamps`; containerd adds the stream, GitLab its own marks.
    Wrapper("iso", _DIGITS, rf"{_ISO} (?:std(?:out|err) [FP] |\d\d[OE][ +])|{_ISO}{_END}"),
    Wrapper("python-logging", _DIGITS, rf"{_DATE} {_TIME}{_ZONE} - [\w.]{{1,80}} - {_LEVEL} - "),
    Wrapper("stamp", _DIGITS, rf"{_DATE} {_TIME}{_ZONE}{_END}"),
    Wrapper("kaggle", _DIGITS, r"\d{1,6}\.\d{1,2}s\t\d{1,6}\t"),
    # RFC 3164, journalctl's default: `Nov 20 21:17:51 host python[123]: `; a line on its way may have `<14>` before it.
    Wrapper(
        "syslog", _UPPER + "<", rf"(?:<\d{{1,3}}>)?[A-Z][a-z]{{2}} [ \d]\d {_TIME} [\w.:-]{{1,64}} {_WRITER}:{_END}"
    ),
    # The kernel's ring buffer: seconds, with CONFIG_PRINTK_CALLER the thread; `dmesg -T` writes the date.
    Wrapper("dmesg", "[<", r"(?:<\d{1,3}>)?\[ {0,6}\d{1,8}\.\d{6}\](?:\[ {0,6}[TC]\d{1,8}\])?" + _END),
    Wrapper("dmesg-date", "[", rf"\[[A-Z][a-z]{{2}} [A-Z][a-z]{{2}} [ \d]\d {_TIME} \d{{4}}\]" + _END),
    Wrapper("gunicorn", "[", rf"\[{_DATE} {_TIME} [+-]\d{{4}}\] \[\d{{1,8}}\] \[{_LEVEL}\] "),
    Wrapper("celery", "[", rf"\[{_DATE} {_TIME}: {_LEVEL}/(?P<who>[\w-]{{1,40}})(?:\(\d{{1,8}}\))?\] "),
    Wrapper("airflow", "[", rf"\[{_DATE}(?:T|, | ){_TIME}{_ZONE}\] \{{[\w.-]{{1,60}}:\d{{1,6}}\}} {_LEVEL} - "),
    # Buildkite, Jenkins with its timestamps.
    Wrapper("bracketed", "[", rf"\[{_DATE}[T ]{_TIME}{_ZONE}\]{_END}"),
    Wrapper("pod", "[", r"\[(?P<who>pod/[\w.-]{1,260}/[\w.-]{1,64})\]" + _END),
    # torch.distributed's own, and torchrun --tee, which writes no blank.
    Wrapper("rank", "[", r"\[(?P<who>rank\d{1,5})\]:(?: |(?=\[)|$)"),
    Wrapper("elastic", "[", r"\[(?P<who>[a-z][a-z_]{0,30}\d{1,5})\]:"),
    Wrapper(
        "mpirun",
        "[",
        r"\[(?P<who>\d{1,9},\d{1,6})\]<std(?:out|err|diag)>:|\[[\w.-]{1,80}@\d{1,6},\d{1,6}\]<std(?:out|err)>: ?",
    ),
    # Ray: `(pid=1) `, `(train pid=1, ip=10.0.0.1) `, `(Actor(index=2) pid=1) `.
    Wrapper(
        "ray", "(", r"\((?P<who>(?:[^\s()]{1,80}(?:\([^()]{0,80}\))? )?pid=\d{1,8}(?:, ip=[\w.:]{1,45})?)\)" + _END
    ),
    Wrapper("ray-service", "(", r"\((?P<who>raylet|gcs_server|autoscaler \+\w{1,12})(?:, ip=[\w.:]{1,45})?\)" + _END),
    # logging.basicConfig: `ERROR:root:...`. No blank in it, unlike a sanitizer's `ERROR: `.
    Wrapper("logging", "DIWEC", rf"{_LEVEL}:[A-Za-z_][\w.]{{0,80}}:(?! )|{_LEVEL}:[A-Za-z_][\w.]{{0,80}}:(?=  )"),
    # pytest marks what it shows of the exception.
    Wrapper("pytest", "E", r"E {3}(?= |\S)"),
    # docker compose, foreman, honcho, pm2: who wrote it, in a column of its own.
    Wrapper(
        "column",
        _DIGITS + _LOWER + _UPPER,
        rf"(?:{_TIME} )?(?P<who>[\w.-]{{1,64}}(?:\|[\w.-]{{1,64}})?) {{0,40}}\|(?: |$)",
        0.6,
    ),
    # stern: pod and container; the pod's name ends as a deployment's do.
    Wrapper("stern", _LOWER, r"(?P<who>[a-z0-9-]{1,63}-[a-z0-9]{8,10}-[a-z0-9]{5} [a-z0-9-]{1,63}) ", 0.8),
    Wrapper("srun", _DIGITS + " ", r" {0,4}(?P<who>\d{1,5}):(?: |$)", 0.9),
    Wrapper("rank-column", "[", r"\[(?P<who>\d{1,5})\](?: |$)", 0.9),
    Wrapper("quote", ">", r"(?:> ?)+", 0.8),
    Wrapper("listing", _DIGITS + " ", r" {0,6}\d{1,6} ?[|\u2502](?: |$)", 0.8),
    Wrapper("clock", _DIGITS + "[", rf"\[?{_TIME}\]?(?:[ \t]|$)", 0.8),
    # pdsh (DeepSpeed's launcher): the host.
    Wrapper("host", _LOWER + _UPPER, r"(?P<who>[A-Za-z][\w.-]{0,63}):(?: |$)", 0.95),
)
_SAFE = tuple(one for one in _WRAPPERS if not one.share)
_VOTED = tuple(one for one in _WRAPPERS if one.share)
_FEWEST = 5
"""Lines below which nothing is voted on: two lines that begin with ``0: `` prove nothing."""
_MOST_HOSTS = 64


def _by_first(wrappers: Sequence[Wrapper]) -> Mapping[str, tuple[Wrapper, ...]]:
    firsts = {char for one in wrappers for char in one.begins}
    return {char: tuple(one for one in wrappers if char in one.begins) for char in firsts}


_SAFE_BY_FIRST = _by_first(_SAFE)


@dataclass(frozen=True)
class Unwrap:
    """Takes the wrappers off the lines of one text: those that nobody mistakes, and those that its lines voted for."""

    voted: tuple[Wrapper, ...] = ()

    def __call__(self, line: str) -> tuple[str, str]:
        """The line without wrappers, its indentation kept, and who wrote it (empty where nobody is named)."""
        if self.voted:
            return _unwrapped(line, _SAFE_BY_FIRST, self.voted)
        first = line[:1]
        return _unwrapped(line, _SAFE_BY_FIRST, ()) if first in _SAFE_BY_FIRST or first == "{" else (line, "")


def _unwrapped(line: str, safe: Mapping[str, tuple[Wrapper, ...]], voted: Sequence[Wrapper]) -> tuple[str, str]:
    writers: list[str] = []
    left = list(voted)
    for _ in range(_DEPTH):
        if line.startswith('{"log":"'):
            line = _docker(line)
        match = None
        for wrapper in safe.get(line[:1], ()):
            if match := wrapper.pattern.match(line):
                break
        else:
            for wrapper in left:
                if match := wrapper.pattern.match(line):
                    left.remove(wrapper)
                    break
        if match is None:
            break
        if match.re.groupindex:
            writers.append(match["who"] or "")
        line = line[match.end() :]
    return line, " ".join(writers)


def _docker(line: str) -> str:
    try:
        text = json.loads(line)["log"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return line
    return text.rstrip("\r\n").replace("\n", " ") if isinstance(text, str) else line


def vote(lines: Iterable[str]) -> Unwrap:
    """What to take off the lines of a text; ``lines`` are those of its beginning and its end, or all."""
    bare = [rest for rest in (_unwrapped(line, _SAFE_BY_FIRST, ())[0] for line in lines) if rest.strip()]
    if len(bare) < _FEWEST:
        return Unwrap()
    chosen: list[Wrapper] = []
    for wrapper in _VOTED:
        matches = [match for line in bare if (match := wrapper.pattern.match(line))]
        if len(matches) >= wrapper.share * len(bare) and _is_plausible(wrapper, [match[0] for match in matches]):
            chosen.append(wrapper)
            # What it leaves may be wrapped once more.
            bare = [rest for line in bare if (rest := wrapper.pattern.sub("", line, count=1)).strip()] or bare
    return Unwrap(tuple(chosen))


def _is_plausible(wrapper: Wrapper, taken: Sequence[str]) -> bool:
    """A host writes more than one line, ranks are several; the numbers of a listing rise."""
    if wrapper.name == "host":
        counts = Counter(taken)
        return len(taken) >= 4 * _FEWEST and len(counts) <= _MOST_HOSTS and min(counts.values()) > 2
    if wrapper.name == "rank-column":
        return len(set(taken)) > 1
    if wrapper.name == "listing":
        numbers = [int(re.sub(r"\D", "", one)) for one in taken]
        return all(low < high for low, high in pairwise(numbers))
    return True
