"""``doctor``: from what was asked for to the document, through the collectors and the rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from necropsy import __version__, probing, redact
from necropsy.doctor import collect, surroundings, system
from necropsy.document import new_id
from necropsy.errors import NoInputError
from necropsy.examine import examine
from necropsy.model import Diagnosis, Distribution, Document, Environment, Fix, Gap, Subject, Tool
from necropsy.rules import environment_rules, op_rules
from necropsy.rules.quoting import for_windows


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The words of the command line; see ``collect.Wanted``."""

    python: str | None = None
    packages: Sequence[str] = ()
    ops: Sequence[str] = ()
    deep: bool = False
    reports: str | None = None
    tracing: str | None = None
    stack: tuple[int, int] | None = None
    """The soft and hard stack limit necropsy was started with, if its launcher has raised it."""
    probe: bool = False
    """Import the frameworks and the named packages, each in its own process."""


def examined(asked: Asked, variables: Mapping[str, str], watch: probing.Watch | None = None) -> Document:
    """Collect the environment and apply every rule to it.

    ``variables``: of this process, including those that ``surroundings`` set aside. ``watch`` gets each distribution
    that is being imported. Raises ``NoInputError`` if there is no such interpreter or package, ``InputError`` if it is
    not an interpreter, and ``NecropsyError`` if it does not answer.
    """
    limits, hard = system.limits(), system.limits(hard=True)
    if asked.stack is not None and limits is not None and hard is not None:
        limits["RLIMIT_STACK"], hard["RLIMIT_STACK"] = asked.stack
    system.give_room()
    wanted = collect.Wanted(
        python=asked.python,
        packages=asked.packages,
        variables=surroundings.original(variables),
        limits=limits,
        hard_limits=hard,
        reports=asked.reports,
        tracing=asked.tracing,
        ops=asked.ops,
        deep=asked.deep,
    )
    environment = collect.collect(wanted)
    if asked.probe:
        environment = probing.imported(environment, watch=watch)
    else:
        gap = Gap(part="imports", why="nothing was imported (--no-probe)")
        environment = msgspec.structs.replace(environment, gaps=(*environment.gaps, gap))
    answers = examine(environment, (*environment_rules(), *(op_rules() if asked.ops else ())))
    told = {one.summary.partition(" ")[0] for one in answers.findings}
    absent = [one.name for one in environment.asked if environment.distribution(one.name) is None]
    if not told.issuperset(absent):
        raise NoInputError(f"{', '.join(absent)}: not installed for {environment.executable}")
    return redact.document(
        Document(
            kind="doctor",
            id=new_id(),
            tool=Tool(name="necropsy", version=__version__),
            complete=True,
            subject=Subject(kind="environment", path=environment.executable, text=_in_words(environment)),
            findings=for_its_shell(answers.findings, environment),
            passed=answers.passed,
            not_tried=answers.not_tried,
            gaps=(*environment.gaps, *answers.failed),
        )
    )


def for_its_shell(findings: tuple[Diagnosis, ...], environment: Environment) -> tuple[Diagnosis, ...]:
    """The findings, with commands for cmd.exe where the interpreter is Windows'."""
    if environment.interpreter is None or environment.interpreter.system != "win32":
        return findings
    return tuple(msgspec.structs.replace(one, fixes=tuple(map(_for_windows, one.fixes))) for one in findings)


def _for_windows(fix: Fix) -> Fix:
    return msgspec.structs.replace(fix, command=for_windows(fix.command)) if fix.command is not None else fix


def _in_words(environment: Environment) -> str:
    """``CPython 3.11.7 with tensorflow 2.20.0, numpy 2.1.3 and 30 packages that these require, 132 libraries``."""
    interpreter = environment.interpreter
    distributions = environment.distributions or ()
    named = [one for one in distributions if one.named]
    checked = [one for one in distributions if one.checked]
    name = "Python"
    if interpreter is not None:
        name = interpreter.markers.get("platform_python_implementation", interpreter.implementation)
    words = f"{name} {environment.python}"
    if not named:
        return f"{words}, without any of the frameworks that are checked by themselves"
    words += f" with {', '.join(map(_spelled, named))}"
    more = len(checked) - len(named)
    if more:
        words += f" and {more} package{'s' if more > 1 else ''} required by {'these' if len(named) > 1 else 'it'}"
    own = [one for one in environment.libraries or () if one.distribution is not None]
    return words + (f", {len(own)} libraries" if own else "")


def _spelled(one: Distribution) -> str:
    return f"{one.name} {one.version}"
