"""Who unmapped the memory that was used afterwards: one run in which munmap() and dlclose() are written down.

The kernel keeps no record of it, and to watch these calls in every run would cost each of them. So the program is run
once more with ``preload/unmapped.c`` before the C library, and the call is found by the library or the size.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from necropsy.confirm.campaign import Lab
from necropsy.confirm.conclusions import ExperimentResult
from necropsy.model import Change, Crash, Evidence, Experiment, Fix, Former

RULES = frozenset({"use-after-free", "bad-jump"})
_CALL = re.compile(r"(munmap|dlclose)\t([^\t]*)\t([^\t]*)\t([^\t]*)")
_STANDARD = re.compile(r"/lib/python3\.\d+/(?!(?:site|dist)-packages/)|^<frozen ")


@dataclass(frozen=True)
class Call:
    """One call that unmaps: ``what`` is a size or a library; ``library`` made it; ``python``: the inner calls first."""

    name: str
    what: str
    library: str
    python: tuple[str, ...] = ()

    @property
    def place(self) -> str | None:
        """The innermost line of the user's own Python, else of any."""
        own = next((one for one in self.python if not _STANDARD.search(one)), None)
        return own or next(iter(self.python), None)


def study(crash: Crash, rule: str) -> Unmapping | None:
    """Whom to look for; None where the memory cannot be told from other memory in another run."""
    former = crash.fault.former if crash.fault is not None else None
    if former is None or rule not in RULES:
        return None
    is_known = former.name is not None if former.kind == "library" else former.high is not None
    return Unmapping(rule, former) if former.kind != "heap-block" and is_known else None


def calls(text: str) -> tuple[Call, ...]:
    """What the watched run wrote, the last call first."""
    found = (_CALL.fullmatch(line) for line in text.splitlines())
    return tuple(Call(one[1], one[2], one[3], tuple(one[4].split(" < ")) if one[4] else ()) for one in found if one)


@dataclass(frozen=True)
class Unmapping:
    """The study: one run, which proves nothing by itself, and names who is to be looked at."""

    rule: str
    former: Former
    shares: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """What it changes, in words."""
        return "who unmaps memory is written down (munmap, dlclose)"

    @property
    def most(self) -> int:
        """Runs at the most."""
        return 1

    def conduct(self, lab: Lab) -> ExperimentResult:
        """Run it once, and look for the call."""
        trial = lab.run("who-unmaps", Change(checker="mappings"))
        if trial is None:
            return ExperimentResult(())
        found = next((one for one in calls(trial.why or "") if self._fits(one)), None)
        said = self._in_words(found) if found is not None else "no such call was seen"
        row = Experiment(
            name="who-unmaps",
            change=self.text,
            predicts="-",
            runs=1,
            crashed=int(trial.outcome in {"same", "another"}),
            outcome=said,
            rule=self.rule,
        )
        if found is None or found.place is None:
            return ExperimentResult((row,))
        evidence = (Evidence(claim="what unmapped it", seen=said, where="an observed run"),)
        fix = Fix(text=f"{found.place} unmaps it: do that only after the last use.")
        return ExperimentResult((row,), fixes=(fix,), evidence=evidence)

    def _fits(self, call: Call) -> bool:
        if self.former.kind == "library":
            return call.name == "dlclose" and _last(call.what) == _last(self.former.name or "")
        low, high = self.former.low, self.former.high
        return call.name == "munmap" and low is not None and high is not None and call.what == str(high - low)

    @staticmethod
    def _in_words(call: Call) -> str:
        what = f"{call.name}() of {_last(call.what) if call.name == 'dlclose' else f'{int(call.what):,} bytes'}"
        where = f", at {call.place}" if call.place else ""
        return f"the call was {what} by {_last(call.library) or 'a library'}{where}"


def _last(path: str) -> str:
    return path.rpartition("/")[2]
