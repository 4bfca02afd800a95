"""``check``: from files and folders to the document, through what reads them and the rules on custom ops."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from necropsy import __version__, mask
from necropsy.audit import binaries
from necropsy.doctor import collect, ops, surroundings
from necropsy.document import new_id
from necropsy.errors import InputError, NoInputError
from necropsy.examine import examine
from necropsy.model import Binary, Document, Environment, Gap, Library, NotTried, Subject, Tool
from necropsy.rules import audit_rules

Watch = Callable[[int, int, str], None]
"""Is told which file is being read: its number, of how many, and its path."""
_SUFFIXES = (".so", ".pyd", ".dll")
_OF_TENSORFLOW = frozenset({"op-undefined-symbol"})
_WITHOUT_TENSORFLOW = "no TensorFlow to compare with was named (--tensorflow PYTHON)"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The words of the command line: files and folders, a stack's size in bytes, and which rules to ask."""

    paths: Sequence[str]
    stack: int
    tensorflow: str | None = None
    """An interpreter that has TensorFlow installed."""
    select: Collection[str] = ()
    ignore: Collection[str] = ()
    top: int = 10
    frames_only: bool = False
    """Only the largest frames are wanted: no rule is asked."""


def checked(asked: Asked, watch: Watch | None = None) -> Document:
    """Read all files, ask every rule about them, and make a document of the answers.

    Raises:
        NoInputError: a path does not exist, or a folder holds nothing that can be checked.
        InputError: no file could be read as what it should be.

    """
    found: list[Binary] = []
    gaps: list[Gap] = []
    files = [each for path in asked.paths for each in _files(path)]
    for number, path in enumerate(files):
        if watch is not None:
            watch(number, len(files), path)
        try:
            one, missing = binaries.look(path, asked.stack, top=asked.top, follow=not asked.frames_only)
        except (InputError, NoInputError) as error:
            if len(files) == 1:
                raise
            gaps.append(Gap(part=path, why=str(error)))
        else:
            found.append(one)
            gaps += [Gap(part=f"{each.part} of {Path(path).name}", why=each.why) for each in missing]
    if not found:
        raise InputError(f"none of {len(files)} files could be read; the first: {gaps[0].why}")
    document = Document(
        kind="audit",
        id=new_id(),
        tool=Tool(name="necropsy", version=__version__),
        complete=True,
        subject=Subject(kind="binary", path=" ".join(asked.paths), text=_in_words(found)),
        gaps=tuple(gaps),
        binaries=tuple(found),
    )
    return mask.document(document if asked.frames_only else _judged(document, asked))


def _judged(document: Document, asked: Asked) -> Document:
    """With what the rules say."""
    wanted = [
        rule
        for rule in audit_rules()
        if (not asked.select or rule.name in asked.select) and rule.name not in asked.ignore
    ]
    environment = _environment(document.binaries or (), asked)
    alone = asked.tensorflow is None
    answers = examine(environment, [rule for rule in wanted if not (alone and rule.name in _OF_TENSORFLOW)])
    left = [
        NotTried(rule=rule.name, reason=_WITHOUT_TENSORFLOW, checks=rule.checks)
        for rule in wanted
        if alone and rule.name in _OF_TENSORFLOW
    ]
    return msgspec.structs.replace(
        document,
        findings=answers.findings,
        passed=answers.passed,
        not_tried=(*answers.not_tried, *left),
        gaps=(*document.gaps, *environment.gaps, *answers.failed),
    )


def _environment(found: Sequence[Binary], asked: Asked) -> Environment:
    """Where the libraries would be loaded: into the named interpreter; without one, they alone are known."""
    paths = [one.path for one in found]
    if asked.tensorflow is not None:
        wanted = collect.Wanted(
            python=asked.tensorflow, ops=paths, variables=surroundings.original(os.environ), reports=None
        )
        return msgspec.structs.replace(collect.collect(wanted), binaries=tuple(found))
    looked, gaps = ops.look([Library(path=path, is_op=True) for path in paths], "")
    alone = Gap(part="libraries", why=_WITHOUT_TENSORFLOW)
    kept = [one for one in gaps if not one.part.startswith("symbols of ")]
    return Environment(binaries=tuple(found), ops=looked, gaps=(alone, *kept))


def _in_words(found: Sequence[Binary]) -> str:
    functions = sum(one.functions for one in found)
    kernels = sum(path.is_kernel for one in found for path in one.paths or ())
    libraries = f"{len(found)} libraries with " if len(found) > 1 else ""
    return f"{libraries}{functions:,} functions" + (f", {kernels} of them kernels" if kernels else "")


def _files(path: str) -> Iterator[str]:
    """The file itself, or the libraries in the folder.

    Raises:
        NoInputError: it does not exist, or the folder holds none.

    """
    if not Path(path).is_dir():
        if not Path(path).exists():
            raise NoInputError(f"there is no file {path}")
        yield path
        return
    found = sorted(
        str(Path(folder) / name)
        for folder, _, names in os.walk(path)
        for name in names
        if name.endswith(_SUFFIXES) or ".so." in name
    )
    if not found:
        raise NoInputError(f"{path} holds no library (.so, .pyd, .dll)")
    yield from found
