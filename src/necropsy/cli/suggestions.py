"""What a mistyped command line was meant to be: another command, or one line that names the right one."""

from __future__ import annotations

import difflib
import os
import re
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import click

from necropsy.errors import CommandNotFoundError, NoInputError, NotExecutableError
from necropsy.lazy_re import regex

_URL = regex(r"[a-z][a-z0-9+.-]{1,20}://", re.IGNORECASE)
_ASSIGNMENT = regex(r"[A-Za-z_]\w*=", re.ASCII)
_PYTHON = regex(r"python\d*(?:\.\d+)?(?:\.exe)?|pypy3?|ipython3?|pytest|torchrun|accelerate|uv|poetry")
_INTERPRETERS = {".py": "python", ".pyw": "python", ".sh": "bash", ".js": "node", ".R": "Rscript", ".pl": "perl"}
_ELF_KINDS = {2: "program", 3: "program", 4: "core"}


def near(word: str, known: Iterable[str]) -> str:
    """``. Did you mean 'null-dereference'?`` where one of ``known`` is close to ``word``; otherwise nothing."""
    found = difflib.get_close_matches(word.lower(), {name.lower(): name for name in known}, n=1, cutoff=0.6)
    return f". Did you mean {found[0]!r}?" if found else ""


def instead(words: Sequence[str], commands: Mapping[str, click.Command]) -> list[str]:
    """The intended command line for an unknown first word; raises ``click.UsageError`` with the command to type."""
    first, *rest = words
    shorthand = {"help": [*rest[:1], "--help"], "version": ["--version"], "last": ["show", "last", *rest]}
    if first in shorthand:
        return shorthand[first]
    if _URL.match(first):
        raise click.UsageError(f"{first} is a URL: download the file first, then: necropsy open FILE")
    path = Path(first)
    if _is_there(path):
        return _of_path(path, words)
    if _PYTHON.fullmatch(path.name) or (shutil.which(first) is not None and first not in _like(first, commands)):
        raise click.UsageError(f"to run a program: {shlex.join(['necropsy', 'run', *words])}")
    if " " in first.strip() and shutil.which(first.split()[0]) is not None:
        raise click.UsageError(f"to run a program: necropsy run {' '.join(words)}")
    if not near(first, commands) and _is_explained(first):
        return ["explain", *words]
    raise click.UsageError(f"no such command: {first!r}{near(first, commands)}")


def misplaced(words: Sequence[str], commands: Mapping[str, click.Command]) -> str | None:
    """Where the first word is an option that belongs behind a later subcommand: the line that says so."""
    name = words[0].partition("=")[0]
    at = next((place for place, word in enumerate(words) if word in commands), None)
    owners = [command for command, one in commands.items() if any(name in param.opts for param in one.params)]
    if not owners:
        return None
    if at is None or words[at] not in owners:
        return f"{name} belongs behind a command: necropsy {' | '.join(owners[:3])} {name} ..."
    right = ["necropsy", words[at], *words[:at], *words[at + 1 :]]
    return f"{name} belongs behind `{words[at]}`: {shlex.join(right)}"


def refuse_options(words: Iterable[str], ctx: click.Context) -> None:
    """Reject words with two dashes in commands that accept words such as -11; raises ``click.UsageError``."""
    unknown = next((word for word in words if word.startswith("--")), None)
    if unknown is not None:
        options = [name for param in ctx.command.params for name in param.opts if name.startswith("--")]
        raise click.UsageError(f"no such option: {unknown}{near(unknown, options)}", ctx)


def refuse_url(word: str) -> None:
    """Raise ``NoInputError`` with advice if the word is a URL."""
    if _URL.match(word):
        raise NoInputError(f"{word} is a URL: download the file first, then: necropsy open FILE")


def _like(word: str, known: Iterable[str]) -> list[str]:
    return difflib.get_close_matches(word, list(known), n=1, cutoff=0.75) and [word]


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def _is_explained(word: str) -> bool:
    from necropsy.errors import UnknownCodeError
    from necropsy.explanation import rule_page
    from necropsy.formats import error_names, exit_status

    if rule_page.of_rule(word) is not None or error_names.meaning_of(word) is not None:
        return True
    try:
        exit_status.read([word])
    except UnknownCodeError:
        return False
    return True


def _of_path(path: Path, words: Sequence[str]) -> list[str]:
    """``open`` for what it can read, ``explain`` for a text; programs are only started by ``run``."""
    if path.is_dir():
        if (path / "__main__.py").exists():
            raise click.UsageError(f"to run a program: {shlex.join(['necropsy', 'run', 'python', *words])}")
        raise click.UsageError(f"{path} is a directory: give a report, a core, a dump or a log")
    head = _head(path)
    interpreter = _interpreter(path, head)
    if interpreter is not None:
        raise click.UsageError(f"to run a program: {shlex.join(['necropsy', 'run', interpreter, *words])}")
    if _elf_kind(head) == "program" and not head.startswith(b"MDMP"):
        local = words[0] if "/" in words[0] else f"./{words[0]}"
        raise click.UsageError(f"to run a program: {shlex.join(['necropsy', 'run', local, *words[1:]])}")
    return ["show", *words]


def is_text(path: Path) -> bool:
    """Whether ``explain`` reads this file: not a core, a dump, or a report."""
    head = _head(path)
    if head.startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")):
        head = _unpacked_head(path) or b"\0"
    if head.startswith((b"\x7fELF", b"MDMP", b"PK\x03\x04")):
        return False
    return b'"schema"' not in head and (b"\0" not in head or head.startswith((b"\xff\xfe", b"\xfe\xff")))


def _unpacked_head(path: Path) -> bytes:
    """Empty where it cannot be unpacked: whoever reads it as a core says why."""
    from necropsy.explanation import archives

    try:
        with path.open("rb") as file, archives.unpacked(file, str(path)) as opened:
            return opened.read(4096)
    except Exception:  # noqa: BLE001 - zlib's, lzma's and zstd's errors have no common root
        return b""


def _head(path: Path) -> bytes:
    try:
        if not path.is_file():  # a pipe or a device would block, or lose what is read
            return b""
        with path.open("rb") as file:
            return file.read(4096)
    except OSError:
        return b""


def _interpreter(path: Path, head: bytes) -> str | None:
    if path.suffix in _INTERPRETERS:
        return _INTERPRETERS[path.suffix]
    line = head.split(b"\n", 1)[0]
    if not line.startswith(b"#!"):
        return None
    words = line[2:].decode("utf-8", "replace").split()
    named = [word.rsplit("/", 1)[-1] for word in words if not word.startswith("-") and "=" not in word]
    return next((word for word in named if word != "env"), None)


def _elf_kind(head: bytes) -> str | None:
    return _ELF_KINDS.get(int.from_bytes(head[16:18], "little")) if head.startswith(b"\x7fELF") else None


def advise(error: CommandNotFoundError | NotExecutableError, command: Sequence[str]) -> None:
    """Give the error of a program that could not be started the hint that fits what was typed."""
    hint = _for_program(command)
    if hint is not None:
        error.hint = hint


def _for_program(command: Sequence[str]) -> str | None:
    first, *rest = command
    run = ["necropsy", "run"]
    if _URL.match(first):
        return "necropsy runs programs of this machine: download it first"
    if _ASSIGNMENT.match(first) and not _is_there(Path(first)):
        at = next((place for place, word in enumerate(command) if not _ASSIGNMENT.match(word)), len(command))
        return f"put variables in front: {shlex.join([*command[:at], *run, *(command[at:] or ['COMMAND'])])}"
    path = Path(first)
    if _is_there(path):
        return _for_file(path, first, rest, run)
    words = first.split()
    if len(words) > 1 and not rest:
        return f"without the quotes: necropsy run {first.strip()}"
    if re.fullmatch(r"python\d*(?:\.\d+)?", first):
        other = next((name for name in ("python3", "python") if shutil.which(name)), None)
        return f"try: {shlex.join([*run, other, *rest])}" if other is not None else None
    similar = difflib.get_close_matches(first, _programs(), n=1, cutoff=0.75) if "/" not in first else []
    return f"did you mean: {shlex.join([*run, similar[0], *rest])}" if similar else None


def _for_file(path: Path, first: str, rest: Sequence[str], run: Sequence[str]) -> str | None:
    if path.is_dir():
        is_program = (path / "__main__.py").exists()
        return "it is a directory" + (f": {shlex.join([*run, 'python', first, *rest])}" if is_program else "")
    head = _head(path)
    interpreter = _interpreter(path, head)
    local = first if "/" in first else f"./{first}"
    if os.access(path, os.X_OK) and "/" not in first:
        return f"it is in this folder, not in PATH: {shlex.join([*run, local, *rest])}"
    if interpreter is not None:
        return f"a script needs its interpreter in front: {shlex.join([*run, interpreter, first, *rest])}"
    kind = _elf_kind(head)
    if kind == "core":
        return f"it is a core file: {shlex.join(['necropsy', 'open', first])}"
    if kind == "program" and ".so" in path.name:
        return "it is a shared library, not a program: run the program that loads it"
    if kind == "program":
        return f"it is not executable: {shlex.join(['chmod', '+x', first])}"
    return None


def _programs() -> set[str]:
    found: set[str] = set()
    for folder in os.environ.get("PATH", "").split(os.pathsep)[:50]:
        try:
            found.update(path.name for path in Path(folder or ".").iterdir())
        except OSError:  # noqa: PERF203 - a folder of PATH that is not there is common
            continue
    return found
