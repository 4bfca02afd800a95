"""``check``: from files and folders to the document, through what reads them and the rules on custom ops."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from necropsy import __version__, redact
from necropsy.audit.cxx_repairs import rounds
from necropsy.audit.cxx_repairs.rounds import Repairs
from necropsy.audit.layers.applied import OptionalLayers
from necropsy.audit.reading import CODE, SOURCES, AuditOptions, FileReading, read_all
from necropsy.doctor import collect, ops, surroundings
from necropsy.document import new_id
from necropsy.errors import InputError, NoInputError
from necropsy.examine import examine
from necropsy.model import (
    Binary,
    CodeDefect,
    Diagnosis,
    Document,
    Environment,
    Gap,
    Library,
    Location,
    NotTried,
    SourceUse,
    Subject,
    Tool,
)
from necropsy.rules import audit_rules

Watch = Callable[[int, int, str], None]
"""Gets how many files have been read, how many there are, and the path of the last one."""
_LIBRARIES = (".so", ".pyd", ".dll")
_PASSED_OVER = frozenset({"site-packages", "node_modules", "__pycache__"})
_OF_TENSORFLOW = frozenset({"op-undefined-symbol"})
_WITHOUT_TENSORFLOW = "no TensorFlow to compare with was named (--tensorflow PYTHON)"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The words of the command line: files and folders, a stack's size in bytes, and which rules to ask."""

    paths: Sequence[str]
    stack: int
    tensorflow: str | None = None
    """An interpreter that has TensorFlow."""
    select: Collection[str] = ()
    ignore: Collection[str] = ()
    top: int = 10
    frames_only: bool = False
    """Only the largest frames are wanted: no rule is asked."""
    jobs: int | None = None
    """Processes that read files; None: one on each processor, where that is worth it."""
    cache: Path | None = None
    """A folder for what was read, by the files' contents."""
    prove: bool = False
    """Build the ops and call them, with the TensorFlow of ``tensorflow``, to see whether findings come true."""
    builds: Path | None = None
    """A folder for these builds; None: a temporary one."""


@dataclass
class _Seen:
    binaries: list[Binary] = field(default_factory=list)
    uses: list[SourceUse] = field(default_factory=list)
    sources: int = 0
    code: dict[tuple[str, str, int, int], CodeDefect] = field(default_factory=dict)
    """By rule and place: a header is read with each source that includes it."""
    code_files: int = 0
    undecided: int = 0
    ops: set[str] = field(default_factory=set)
    ops_of: dict[str, Sequence[str]] = field(default_factory=dict)
    """By C++ source."""
    code_of: dict[str, list[tuple[str, str, int, int]]] = field(default_factory=dict)
    """By C++ source: the keys of ``code`` that were found first in it."""
    headers: dict[str, dict[str, str]] = field(default_factory=dict)
    """By C++ source: the hashes of its headers."""
    gaps: list[Gap] = field(default_factory=list)

    @property
    def nothing(self) -> bool:
        return not self.binaries and not self.sources and not self.code_files

    def add(self, one: FileReading) -> None:
        if one.refused is not None:
            self.gaps.append(Gap(part=one.path, why=one.refused))
        elif one.binary is not None:
            self.binaries.append(one.binary)
            self.gaps += [Gap(part=f"{each.part} of {Path(one.path).name}", why=each.why) for each in one.gaps]
        elif one.code is not None:
            own = self.code_of.setdefault(one.path, [])
            for each in one.code:
                at = (each.rule, each.place.path, each.place.line, each.place.column)
                if at not in self.code:
                    own.append(at)
                if at not in self.code or (self.code[at].op is None and each.op is not None):
                    self.code[at] = each
            self.headers[one.path] = one.headers
            self.code_files += 1
            self.undecided += one.undecided
            self.ops.update(one.ops)
            self.ops_of[one.path] = one.ops
            self.gaps += [gap for gap in one.gaps if gap not in self.gaps]
        else:
            self.uses += one.uses or ()
            self.sources += 1

    def in_words(self) -> str:
        """``2 libraries with 1,204 functions, 3 of them kernels and 12 Python files``."""
        words = []
        if self.binaries:
            functions = sum(one.functions for one in self.binaries)
            kernels = sum(path.is_kernel for one in self.binaries for path in one.paths or ())
            libraries = f"{len(self.binaries)} libraries with " if len(self.binaries) > 1 else ""
            words.append(f"{libraries}{functions:,} functions" + (f", {kernels} of them kernels" if kernels else ""))
        if self.code_files:
            ops = f" with {len(self.ops)} op{'s' if len(self.ops) > 1 else ''}" if self.ops else ""
            words.append(f"{self.code_files:,} C++ file{'s' if self.code_files > 1 else ''}{ops}")
            if self.undecided:
                accesses = "1 access" if self.undecided == 1 else f"{self.undecided:,} accesses"
                words[-1] += f" ({accesses} to memory could not be decided)"
        if self.sources:
            words.append(f"{self.sources:,} Python file{'s' if self.sources > 1 else ''}")
        return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def checked(asked: Asked, watch: Watch | None = None, tell: Callable[[str], None] | None = None) -> Document:
    """Check all files with every rule; raises ``NoInputError`` or ``InputError`` if none is readable."""
    files, gaps = _found(asked)
    roots = tuple(path for path in asked.paths if Path(path).is_dir())
    options = AuditOptions(
        stack=asked.stack, top=asked.top, follow=not asked.frames_only, version=__version__, roots=roots
    )
    seen = _Seen(gaps=gaps)
    for number, one in enumerate(read_all(files, options, jobs=asked.jobs, cache=asked.cache)):
        if watch is not None:
            watch(number + 1, len(files), one.path)
        if one.refused is not None and len(files) == 1:
            raise (NoInputError if one.is_missing else InputError)(one.refused)
        seen.add(one)
    if seen.nothing:
        raise InputError(f"none of {len(files)} files could be read; the first: {seen.gaps[0].why}")
    if seen.code_files and not asked.frames_only:
        _ask_layers(seen, asked, tell)
    document = Document(
        kind="audit",
        id=new_id(),
        tool=Tool(name="necropsy", version=__version__),
        complete=True,
        subject=Subject(kind="binary" if seen.binaries else "source", path=" ".join(asked.paths), text=seen.in_words()),
        gaps=tuple(seen.gaps),
        binaries=tuple(seen.binaries),
    )
    if not asked.frames_only:
        document = _judged(document, seen, asked)
    if asked.prove and asked.tensorflow is not None:
        document = _proved(document, seen, asked, asked.tensorflow, tell)
    return redact.document(document)


def _ask_layers(seen: _Seen, asked: Asked, tell: Callable[[str], None] | None) -> None:
    """A layer that was not used becomes a gap."""
    layers = OptionalLayers(asked.tensorflow, asked.jobs, tell, asked.cache, seen.headers)
    wanted = {path: [at for at in keys if _is_asked(asked, at[0])] for path, keys in seen.code_of.items()}
    known = layers.applied({path: [seen.code[at] for at in keys] for path, keys in wanted.items()})
    for path, keys in wanted.items():
        seen.code.update(zip(keys, known[path], strict=True))
    seen.gaps += layers.gaps


def _proved(document: Document, seen: _Seen, asked: Asked, python: str, tell: Callable[[str], None] | None) -> Document:
    from necropsy.prove.proof import Prover

    with tempfile.TemporaryDirectory(prefix="necropsy-builds-") as place:
        prover = Prover(
            python=python,
            place=asked.builds or Path(place),
            stack=asked.stack,
            sources=seen.ops_of,
            watch=tell or (lambda _: None),
        )
        found = prover.proved(document.findings)
        return msgspec.structs.replace(document, findings=found, gaps=(*document.gaps, *prover.gaps))


def repairs(asked: Asked, watch: Callable[[int, int, str], None] | None = None, *, write: bool) -> Repairs:
    """Find repairs, and apply them if ``write``; raises ``NoInputError`` if nothing can be checked."""
    files = [each for each in _found(asked)[0] if each.endswith(CODE)]
    roots = [path for path in asked.paths if Path(path).is_dir()]
    result = rounds.repaired(files, asked.stack, roots, lambda rule: _is_asked(asked, rule), watch)
    if write:
        rounds.write(result)
    return result


def _is_asked(asked: Asked, rule: str) -> bool:
    return (not asked.select or rule in asked.select) and rule not in asked.ignore


def missing(asked: Asked) -> list[str]:
    """The paths that do not exist."""
    return [path for path in asked.paths if not Path(path).exists()]


def _found(asked: Asked) -> tuple[list[str], list[Gap]]:
    """All files, and the paths that are none and hold none; raises ``NoInputError`` if there is no file at all."""
    files: list[str] = []
    gaps: list[Gap] = []
    for path in asked.paths:
        try:
            files += _files(path)
        except NoInputError as error:  # noqa: PERF203 - the other paths are checked
            gaps.append(Gap(part=path, why=str(error)))
    if not files:
        raise NoInputError(gaps[0].why)
    return files, gaps


def _files(path: str) -> Iterator[str]:
    """The file itself, or the checkable files in the folder; raises ``NoInputError`` if there are none."""
    if not Path(path).is_dir():
        if not Path(path).exists():
            raise NoInputError(f"there is no file {path}")
        yield path
        return
    found = []
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(one for one in folders if not one.startswith(".") and one not in _PASSED_OVER)
        found += [str(Path(folder) / name) for name in sorted(names) if _is_wanted(name)]
    if not found:
        raise NoInputError(f"{path} holds no library (.so, .pyd, .dll), C++ source or Python file")
    yield from found


def _is_wanted(name: str) -> bool:
    return name.endswith((*_LIBRARIES, *SOURCES, *CODE)) or ".so." in name


def _judged(document: Document, seen: _Seen, asked: Asked) -> Document:
    """Rules on kinds of files that were not given are not asked."""
    given = {
        "binaries": bool(seen.binaries),
        "ops": bool(seen.binaries),
        "uses": seen.sources > 0,
        "code": seen.code_files > 0,
    }
    wanted = [
        rule
        for rule in audit_rules()
        if _is_asked(asked, rule.name)
        and all(any(given.get(part, True) for part in need.split(" or ")) for need in rule.needs)
        and (seen.binaries or {"uses", "code"}.intersection(" ".join(rule.needs).split()))
    ]
    left = [rule for rule in wanted if asked.tensorflow is None and rule.name in _OF_TENSORFLOW]
    environment = _environment(seen, asked)
    answers = examine(environment, [rule for rule in wanted if rule not in left])
    return msgspec.structs.replace(
        document,
        findings=tuple(_placed(one, seen) for one in answers.findings),
        passed=answers.passed,
        not_tried=(
            *answers.not_tried,
            *(NotTried(rule=rule.name, reason=_WITHOUT_TENSORFLOW, checks=rule.checks) for rule in left),
        ),
        gaps=(*document.gaps, *environment.gaps, *answers.failed),
    )


def _placed(one: Diagnosis, seen: _Seen) -> Diagnosis:
    """Use the library as the place if the rule names none."""
    where = {each.where for each in one.evidence}
    path = next((each.path for each in seen.binaries if each.path in where), None)
    if one.locations or path is None:
        return one
    return msgspec.structs.replace(one, locations=(Location(path=path, role="definition"),))


def _environment(seen: _Seen, asked: Asked) -> Environment:
    """Where the libraries would be loaded: the named interpreter, or the libraries alone if none is named."""
    uses = tuple(seen.uses) if seen.sources else None
    code = tuple(seen.code.values()) if seen.code_files else None
    if not seen.binaries:
        return Environment(uses=uses, code=code)
    paths = [one.path for one in seen.binaries]
    if asked.tensorflow is not None:
        wanted = collect.Wanted(python=asked.tensorflow, ops=paths, variables=surroundings.original(os.environ))
        return msgspec.structs.replace(collect.collect(wanted), binaries=tuple(seen.binaries), uses=uses, code=code)
    here = [one.path for one in seen.binaries if one.system == "linux"]
    if not here:
        gap = Gap(part="ops", why="of libraries for Windows, these are not read")
        return Environment(binaries=tuple(seen.binaries), uses=uses, code=code, gaps=(gap,))
    looked, gaps = ops.look([Library(path=path, is_op=True) for path in here], "")
    alone = Gap(part="libraries", why=_WITHOUT_TENSORFLOW)
    kept = [one for one in gaps if not one.part.startswith("symbols of ")]
    return Environment(binaries=tuple(seen.binaries), ops=looked, uses=uses, code=code, gaps=(alone, *kept))
