"""Finds two imports that conflict, and whether the other order survives.

One watched run gives the packages with native code in import order, from Python's audit events (PEP 578). They are then
imported alone; if that dies too, the list is minimised ("delta debugging": Zeller and Hildebrandt, IEEE TSE 28(2),
2002). If the imports alone survive, each package is tried as the program's first.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from necropsy.confirm.campaign import Lab
from necropsy.confirm.checkers import LOG
from necropsy.confirm.conclusions import ExperimentResult, proved_instead
from necropsy.confirm.tally import Tally, outcome_of
from necropsy.model import Change, Crash, Evidence, Experiment, Fix

CONFLICT = "conflicting-libraries"
RULES = frozenset({CONFLICT, "duplicate-openmp", "static-tls-exhausted", "protobuf-mismatch"})
"""Verdicts about two conflicting libraries, or one loaded too late."""
MOST = 40
"""Maximum runs: a list of 30 is halved five times, and each of the remaining two runs alone."""
_CLASH = 4
"""More imports that die together than this say nothing: the runs did not suffice to reduce them."""
_FIRST = 4
"""Packages tried as the program's first, from the last one on."""
_REFUSED = frozenset({None, "python-exception", "exit-status-only"})
"""Verdicts on a run in which an import raised, if the program died of something else."""
_ALONE = "one of them cannot be imported alone"
_NAME = re.compile(r"[A-Za-z_]\w*$")
WATCH = f"""
import os, sys
seen = list(sys.path)
handle = os.open("{LOG}.%d" % os.getpid(), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
def note(event, arguments):
    for place in sys.path if event == "import" else ():
        if place not in seen:
            seen.append(place)
            os.write(handle, ("path\\t%s\\t\\n" % os.path.abspath(place)).encode("utf-8", "replace"))
    if event == "import" or event == "ctypes.dlopen":
        where = arguments[1] if event == "import" else None
        try:
            os.write(handle, ("%s\\t%s\\t%s\\n" % (event, arguments[0], where or "")).encode("utf-8", "replace"))
        except OSError:
            pass
sys.addaudithook(note)
"""


@dataclass(frozen=True)
class ImportOrder:
    """The program's imports alone, fewer of them, and in another order.

    ``places``: folders of the program's own modules; ``title``: that of the rule on conflicts.
    """

    rule: str
    places: Sequence[str]
    title: str = ""
    wanted: Sequence[str] = ()
    """The script's imports in its text; the program may have died before the last ones."""
    shares: frozenset[str] = frozenset({CONFLICT})

    @property
    def text(self) -> str:
        """What it changes, in words."""
        return "the packages with native code alone, fewer and fewer of them, and in another order"

    @property
    def most(self) -> int:
        """Runs of a program that dies every time."""
        return MOST

    def conduct(self, lab: Lab) -> ExperimentResult:
        """Watch, make the list smaller, and try the other order."""
        trial = lab.run("imports", Change(at_start=(WATCH,), checker="imports"))
        if trial is None:
            return ExperimentResult(())
        told, *places = (trial.why or "").split("\n")
        packages = [name for name in told.split() if _NAME.match(name)]
        if len(packages) < 2:
            found = f"only {packages[0]} has native code" if packages else "none with native code"
            row = self._row("the program's imports are watched", Tally([trial.outcome]), found)
            return ExperimentResult((row,))
        # The program may have added to the folders that it looks in.
        return replace(self, places=tuple(places) or self.places).tried(lab, packages)

    def tried(self, lab: Lab, packages: Sequence[str]) -> ExperimentResult:
        """The ``packages`` alone, and then what their outcome asks for."""
        trials = _Alone(lab, self.places)
        whole = trials.of(packages)
        if trials.dies(packages):
            return self._least(lab, trials, packages)
        means = _ALONE if whole.crashed else ", ".join(packages)
        row = self._row(f"{len(packages)} imports alone, in the program's order", whole, means, conclusive=False)
        if not whole.crashed and not _lives(lab, whole):
            return ExperimentResult((row,))
        return self._first(lab, packages, row)

    def _least(self, lab: Lab, trials: _Alone, packages: Sequence[str]) -> ExperimentResult:
        """If the imports alone die: the smallest such set, and these in the other order."""
        least = minimal(packages, trials.dies)
        said = "; ".join(f"import {name}" for name in least)
        if len(least) == 1:
            return self._before(lab, trials, packages, least[0])
        each = [_lives(lab, trials.of([name])) for name in least]
        if not all(each) or len(least) > _CLASH:
            return ExperimentResult((self._row(said, trials.of(least), "it was not tried with fewer of them"),))
        alone = "each of them alone lives"
        rows = [self._row(said, trials.of(least), alone)]
        other = (least[-1], *least[:-1])
        swapped = trials.of(other)
        lives = _lives(lab, swapped)
        text = "; ".join(f"import {name}" for name in other)
        rows.append(self._row(text, swapped, "the order decides" if lives else None, conclusive=lives))
        claim = f"imported alone, with nothing else of the program, they die in this order: {said}"
        seen = f"{alone}; {'in the other order they live' if lives else 'in the other order they die too'}"
        evidence = (Evidence(claim=claim, seen=seen, where="imports alone"),)
        fixes: tuple[Fix, ...] = ()
        if lives:
            fix, row = self._verified(lab, least[-1], least[0])
            rows.append(row)
            fixes = (fix,)
        return self._proved(rows, fixes, evidence, claim)

    def _before(self, lab: Lab, trials: _Alone, packages: Sequence[str], name: str) -> ExperimentResult:
        """If one import dies alone: whether it survives after another one."""
        row = self._row(f"import {name}", trials.of([name]), "it dies without any other package")
        after = [one for one in self.wanted if one not in packages]
        others = [*after, *(one for one in packages if one != name)]
        rows = [row]
        for other in others[:_FIRST]:
            both = trials.of([other, name])
            if not _lives(lab, both):
                continue
            rows.append(self._row(f"import {other}; import {name}", both, "the order decides", conclusive=True))
            fix, tried = self._verified(lab, other, name)
            rows.append(tried)
            if fix.verified:
                claim = f"{name} dies where it is imported before {other}, and lives after it"
                evidence = (Evidence(claim=claim, seen=f"{tried.crashed} of {tried.runs} runs died", where="imports"),)
                return self._proved(rows, (fix,), evidence, claim)
        return ExperimentResult(tuple(rows))

    def _first(self, lab: Lab, packages: Sequence[str], row: Experiment) -> ExperimentResult:
        """If the imports alone survive: whether the program does with another import first."""
        rows = [row]
        for name in list(reversed(packages[1:]))[:_FIRST]:
            fix, tried = self._verified(lab, name, packages[0])
            rows.append(tried)
            if fix.verified:
                claim = f"with {name} imported before {packages[0]} it lives"
                seen = f"{tried.crashed} of {tried.runs} runs died"
                evidence = (Evidence(claim=claim, seen=seen, where="the order of imports"),)
                return self._proved(rows, (fix,), evidence, claim)
        return ExperimentResult(tuple(rows))

    def _proved(
        self, rows: Sequence[Experiment], fixes: tuple[Fix, ...], evidence: tuple[Evidence, ...], claim: str
    ) -> ExperimentResult:
        if self.rule in RULES:
            return ExperimentResult(tuple(rows), {self.rule: True}, fixes, evidence=evidence)
        found = proved_instead(CONFLICT, self.title, claim, rows[0])
        return ExperimentResult(tuple(rows), {CONFLICT: True}, fixes, evidence=evidence, instead=found)

    def _verified(self, lab: Lab, first: str, before: str) -> tuple[Fix, Experiment]:
        change = Change(at_start=(_statements(self.places, [first]),))
        tally = lab.tally(f"import {first} first", change)
        lives = _lives(lab, tally)
        row = self._row(f"the program with {first} imported first", tally, None, conclusive=lives)
        verified = True if lives else False if tally.crashed else None
        text = f"Import {first} before {before}: as the first import of the program."
        named = all(map(str.isidentifier, first.split(".")))
        return Fix(text=text, command=f"import {first}" if named else None, verified=verified), row

    def _row(self, change: str, tally: Tally, means: str | None, *, conclusive: bool | None = None) -> Experiment:
        return Experiment(
            name=f"imports: {change}",
            change=change,
            predicts="two imports decide whether it dies",
            runs=len(tally.outcomes),
            crashed=tally.crashed,
            outcome=outcome_of(tally),
            rule=self.rule,
            means=means,
            conclusive=bool(tally.crashed) if conclusive is None else conclusive or bool(tally.crashed),
        )


@dataclass
class _Alone:
    """Imports and nothing else of the program; each list is tried once."""

    lab: Lab
    places: Sequence[str]
    runs: int = 0
    _known: dict[tuple[str, ...], Tally] = field(default_factory=dict)
    _refused: set[tuple[str, ...]] = field(default_factory=set)

    def of(self, names: Sequence[str]) -> Tally:
        key = tuple(names)
        if key not in self._known and self.runs >= MOST:
            return Tally(ended_early=True)
        if key not in self._known:
            change = Change(at_start=(_statements(self.places, key), "import os; os._exit(0)"))
            self._known[key] = self.lab.tally(f"imports alone: {', '.join(key)}", change)
            self.runs += len(self._known[key].outcomes)
            last = self.lab.last
            if last is not None and last.outcome == "another" and last.rule in _REFUSED:
                self._refused.add(key)
        return self._known[key]

    def dies(self, names: Sequence[str]) -> bool:
        """A package that cannot be imported by itself does not count."""
        return bool(self.of(names).crashed) and tuple(names) not in self._refused


def _statements(places: Sequence[str], names: Sequence[str]) -> str:
    """A failing import ends it as it would have ended the program."""
    imports = "\n".join(f"    import {name}" for name in names)
    return (
        f"import os, sys, traceback\n_before = list(sys.path)\nsys.path[:0] = {list(places)!r}\ntry:\n{imports}\n"
        "except Exception:\n    traceback.print_exc()\n    sys.stderr.flush()\n    os._exit(1)\n"
        "sys.path[:] = _before"
    )


def _lives(lab: Lab, tally: Tally) -> bool:
    return bool(tally.outcomes) and tally.outcome == "survives" and lab.is_known and len(tally.outcomes) >= lab.enough


def minimal(names: Sequence[str], dies: Callable[[Sequence[str]], bool]) -> tuple[str, ...]:
    """The fewest of ``names``, in their order, for which ``dies`` holds as it does for all: no one can be left out."""
    left, parts = tuple(names), 2
    while len(left) > 1:
        size = -(-len(left) // parts)
        chunks = [left[at : at + size] for at in range(0, len(left), size)]
        smaller = next((chunk for chunk in chunks if dies(chunk)), None)
        if smaller is not None:
            left, parts = smaller, 2
            continue
        without = [tuple(name for name in left if name not in chunk) for chunk in chunks]
        rest = next((one for one in without if len(chunks) > 2 and dies(one)), None)
        if rest is not None:
            left, parts = rest, max(2, parts - 1)
        elif parts >= len(left):
            break
        else:
            parts = min(len(left), 2 * parts)
    return left


def at_import(crash: Crash) -> bool:
    """It died while Python imported a module."""
    thread = crash.crashed_thread
    frames = (thread.python if thread is not None else None) or ()
    return any((frame.source or "").startswith("<frozen importlib") for frame in frames)


def study(rule: str, crash: Crash, command: Sequence[str], title: str) -> ImportOrder | None:
    """The study of the imports of ``command``; None where neither the verdict nor where it died asks for it."""
    if rule not in RULES and not at_import(crash):
        return None
    script = next((word for word in command[1:] if not word.startswith("-")), "")
    place = str(Path(script).resolve().parent) if script.endswith(".py") else str(Path.cwd())
    return ImportOrder(rule, (place,), title, _wanted(Path(script)))


def _wanted(script: Path) -> tuple[str, ...]:
    """Without Python's own; none if the script cannot be read."""
    try:
        tree = ast.parse(script.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ()
    names: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names.append(node.module)
    packages = dict.fromkeys(name.partition(".")[0] for name in names)
    return tuple(name for name in packages if name not in sys.stdlib_module_names)
