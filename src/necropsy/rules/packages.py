"""What the rules on packages share: versions, and commands that install something for the interpreter in question."""

from __future__ import annotations

import operator
import re
import shlex
from collections.abc import Iterable, Iterator

from packaging.version import InvalidVersion, Version

from necropsy.model import Distribution, Environment, Evidence, Fix, Requirement


def checked(environment: Environment) -> tuple[Distribution, ...]:
    """The distributions that are checked."""
    return tuple(one for one in environment.distributions or () if one.checked)


def version(text: str) -> Version | None:
    """The version; None where it is none of PEP 440."""
    try:
        return Version(text)
    except InvalidVersion:
        return None


def meets(installed: str, specifier: str) -> bool:
    """The installed version is one that the specifier allows; where one of them cannot be read, nobody can say no."""
    if (plain := _meets_plainly(installed, specifier)) is not None:
        return plain
    from packaging.specifiers import InvalidSpecifier, SpecifierSet  # takes as long to load as all rules together

    try:
        return SpecifierSet(specifier).contains(installed, prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return True


_BOUND = re.compile(r"\s*(<=|>=|<|>)\s*(\d+(?:\.\d+)*)\s*")
_COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def _meets_plainly(installed: str, specifier: str) -> bool | None:
    """Handles plain numbers and bounds, the usual case; None if it takes more."""
    bounds = [_BOUND.fullmatch(part) for part in specifier.split(",")]
    if re.fullmatch(r"\d+(?:\.\d+)*", installed) is None or None in bounds:
        return None
    number = _number(installed)
    return all(_COMPARE[one[1]](number, _number(one[2])) for one in bounds if one is not None)


def _number(text: str) -> tuple[int, ...]:
    """2.0 and 2.0.0 are one version."""
    return tuple(map(int, re.sub(r"(?:\.0+)+$", "", text).split(".")))


def required(environment: Environment) -> Iterator[tuple[Distribution | None, Requirement, Distribution]]:
    """Each requirement that applies, with who asks (None: the command line) and what is installed of it."""
    for one in checked(environment):
        for requirement in one.requires:
            installed = environment.distribution(requirement.name)
            if requirement.applies and installed is not None:
                yield one, requirement, installed
    for requirement in environment.asked:
        installed = environment.distribution(requirement.name)
        if installed is not None:
            yield None, requirement, installed


def quoted(who: Distribution | None, requirement: Requirement) -> Evidence:
    """The requirement in its own words."""
    if who is None:
        return Evidence(claim="the requirement", seen=requirement.text, where="the command line")
    return Evidence(
        claim=f"{who.name} {who.version} requires", seen=f"Requires-Dist: {requirement.text}", where=who.metadata
    )


def there(one: Distribution) -> Evidence:
    """The distribution that is installed."""
    return Evidence(claim="what is installed", seen=f"{one.name} {one.version}", where=one.metadata or one.location)


def together(environment: Environment, name: str, *more: str) -> str:
    """One specifier for ``name`` that serves all that require it, and ``more``; the strictest bounds where they agree."""
    specifiers = [one.specifier for _, one, _ in required(environment) if one.name == name and one.specifier]
    parts = sorted({part.strip() for text in (*specifiers, *more) for part in text.split(",") if part.strip()})
    return ",".join(_strictest(parts))


def _strictest(parts: Iterable[str]) -> list[str]:
    """Drop lower and upper bounds implied by other ones."""
    found: dict[str, tuple[Version, str]] = {}
    others: list[str] = []
    for part in parts:
        operator = next((one for one in ("<=", ">=", "<", ">") if part.startswith(one)), None)
        number = version(part[len(operator) :].strip()) if operator else None
        if operator is None or number is None:
            others.append(part)
            continue
        side = operator[0]
        held = found.get(side)
        stricter = held is None or (number > held[0] if side == ">" else number < held[0])
        if stricter or (held is not None and number == held[0] and len(operator) == 1):
            found[side] = (number, part)
    return [found[side][1] for side in "<>" if side in found] + sorted(others)


def is_possible(specifier: str) -> bool:
    """Some version can meet it: its bounds do not contradict each other, nor does one exclude what another pins."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        parts = list(SpecifierSet(specifier))
    except InvalidSpecifier:
        return False
    bounds = [number for part in parts if (number := version(part.version.removesuffix(".*"))) is not None]
    near = [f"{number}{more}" for number in bounds for more in ("", ".0.1", ".1", ".99")]
    below = [f"{number.major}.{number.minor - 1}.99" for number in bounds if number.minor]
    below += [f"{number.major - 1}.999" for number in bounds if number.major]
    return not bounds or any(meets(one, specifier) for one in (*near, *below) if version(one) is not None)


def is_native(environment: Environment, one: Distribution) -> bool:
    """It has compiled code: by its libraries, or where these were not read, by what it was built for."""
    if environment.libraries is not None and any(library.distribution == one.name for library in environment.libraries):
        return True
    return any(not tag.endswith("-any") for tag in one.tags)


def upgrade(environment: Environment, names: Iterable[str], text: str, *, like: Distribution | None = None) -> Fix:
    """Have newer releases of several distributions chosen that fit together."""
    first, *rest = dict.fromkeys(names)
    words = _install(environment, first, like, force=False)
    if words[0] == "conda":
        words[1], rest = "update", [_for_conda(environment, one) for one in rest]
    else:
        words.insert(words.index("install") + 1, "--upgrade")
    return Fix(text=text, command=command(environment, [*words, *rest]))


def install(
    environment: Environment, what: str, text: str, *, like: Distribution | None = None, force: bool = False
) -> Fix:
    """Install ``what`` (``numpy<2``) with the tool that installed ``like``; ``force``: even if it is installed."""
    return Fix(text=text, command=command(environment, _install(environment, what, like, force=force)))


def _install(environment: Environment, what: str, like: Distribution | None, *, force: bool) -> list[str]:
    interpreter = environment.interpreter
    executable = interpreter.executable if interpreter is not None else environment.executable or "python"
    installer = like.installer if like is not None else None
    if installer == "conda" and interpreter is not None and interpreter.prefix is not None:
        more = ["--force-reinstall"] if force else []
        return ["conda", "install", "--prefix", interpreter.prefix, *more, _for_conda(environment, what)]
    if installer == "uv" and environment.distribution("pip") is None:
        return ["uv", "pip", "install", "--python", executable, *(["--reinstall"] if force else []), what]
    more = ["--force-reinstall", "--no-deps"] if force else []
    if interpreter is not None and interpreter.externally_managed:
        more.append("--break-system-packages")
    return [*_pip(environment, executable), "install", *more, what]


_SPECIFIED = re.compile(r"(?P<name>[\w.-]+?)(?:\[[^\]]*\])?(?P<rest>[<>=!~].*)?")


def _for_conda(environment: Environment, what: str) -> str:
    """Conda's own package names, without extras, which it does not know."""
    match = _SPECIFIED.fullmatch(what)
    if match is None:
        return what
    one = environment.distribution(match["name"])
    return ((one.conda if one is not None else None) or match["name"]) + (match["rest"] or "")


def again(environment: Environment, one: Distribution, text: str, *, alone: bool = True) -> Fix:
    """Install the same version of ``one`` again; not ``alone``: and all that it requires."""
    fix = install(environment, f"{one.name}=={one.version}", text, like=one, force=True)
    return fix if alone else Fix(text=text, command=(fix.command or "").replace(" --no-deps", ""))


def from_source(environment: Environment, one: Distribution, text: str) -> Fix:
    """Build and install the same version of ``one``."""
    words = _install(environment, f"{one.name}=={one.version}", None, force=True)
    words.insert(words.index("install") + 1, f"--no-binary={one.name}")
    return Fix(text=text, command=command(environment, words))


def for_interpreter(environment: Environment, fix: Fix) -> Fix:
    """The same with the pip of the interpreter in question, where its command begins with a bare ``pip install``."""
    words = shlex.split(fix.command or "")
    if words[:2] != ["pip", "install"]:
        return fix
    start = _install(environment, "", None, force=False)[:-1]
    return Fix(text=fix.text, command=command(environment, [*start, *words[2:]]))


_BARE = re.compile(r"[\w.:\\/+=~,-]+", re.ASCII)


def command(environment: Environment, words: Iterable[str]) -> str:
    """One line for the shell where the interpreter runs: on Windows for cmd.exe, which knows no single quotes."""
    if environment.interpreter is None or environment.interpreter.system != "win32":
        return shlex.join(words)
    return " ".join(word if _BARE.fullmatch(word) else f'"{word}"' for word in words)


def order(text: str) -> Version:
    """For sorting versions; what is none comes first."""
    return version(text) or Version("0")


def uninstall(environment: Environment, *names: str) -> str:
    """The command that removes distributions; it asks nothing."""
    interpreter = environment.interpreter
    executable = interpreter.executable if interpreter is not None else environment.executable or "python"
    found = [environment.distribution(name) for name in names]
    if (
        interpreter is not None
        and interpreter.prefix is not None
        and all(one and one.installer == "conda" for one in found)
    ):
        known = [_for_conda(environment, name) for name in names]
        return command(environment, ["conda", "remove", "--prefix", interpreter.prefix, "--force", "--yes", *known])
    managed = ["--break-system-packages"] if interpreter is not None and interpreter.externally_managed else []
    return command(environment, [*_pip(environment, executable), "uninstall", "--yes", *managed, *names])


def _pip(environment: Environment, executable: str) -> list[str]:
    """The interpreter's pip, or the one on PATH, which serves other interpreters since 22.3.

    For a dead process, only packages of loaded libraries are known, and pip is not among them.
    """
    if environment.distributions is not None and not environment.mapped and environment.distribution("pip") is None:
        return ["pip", "--python", executable]
    return [executable, "-m", "pip"]
