"""Output of a checker that watched a run: valgrind, or ThreadSanitizer in an op that was built with it.

Each process writes its own file in the run's folder. After the run, the readers and rules of ``necropsy explain`` read
them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from necropsy import redact
from necropsy.capture.merge import told
from necropsy.diagnose import diagnose
from necropsy.errors import InputError
from necropsy.formats import log, sanitizers
from necropsy.formats.sanitizers import ReportPart
from necropsy.model import Change, Crash, Culprit, Diagnosis, Frame, Message
from necropsy.rule import Rule

LOG = "{LOG}"
"""Stands for the start of the path of a checker's files in a change."""
PREFIX = "checker"
_MOST_CALLS = 200
"""The last calls that unmap memory which are kept of a watched run."""
_MOST_FILES = 64
_LONGEST = 4 << 20
"""Bytes of one file that are read where each report is read by itself."""
_NULL_PAGE = 4096
_REFUSALS = (
    ("unhandled instruction bytes", "valgrind does not know an instruction that it uses"),
    ("Unrecognised instruction", "valgrind does not know an instruction that it uses"),
    ("the 'impossible' happened", "valgrind itself failed"),
    ("Valgrind: FATAL", "valgrind itself failed"),
    ("Out of memory", "valgrind ran out of memory"),
    (
        "FATAL: ThreadSanitizer: ",
        "ThreadSanitizer does not find its memory in this address space (sysctl vm.mmap_rnd_bits=28 helps)",
    ),
)


@dataclass(frozen=True)
class Said:
    """A checker's verdict on the first bad access, and who made it.

    ``ran``: it has watched the program. ``note``: why it could not, or what it saw that does not count.
    """

    ran: bool
    rule: str | None = None
    where: str | None = None
    culprit: Culprit | None = None
    note: str | None = None
    seen: Diagnosis | None = None
    """Its diagnosis: the place in the block, who allocated it, and who freed it."""


def read(change: Change, place: Path, rules: Sequence[Rule[Crash]]) -> Said:
    """What the checker of ``change`` wrote in ``place``."""
    # In the order in which the processes began: a child's finding is told where its parent has none.
    files = sorted(place.glob(f"{PREFIX}*"), key=lambda path: path.stat().st_mtime)[:_MOST_FILES]
    if change.checker == "thread-sanitizer":
        library = Path(change.library[0]).name if change.library is not None else ""
        return _races(files, library)
    if change.checker == "imports":
        return Said(ran=bool(files), note="\n".join(_imported(files)) or None)
    if change.checker == "memory":
        return Said(ran=True, note=next((last for path in files for last in reversed(_text(path).splitlines())), None))
    if change.checker == "mappings":
        lines = [line for path in files for line in _text(path).splitlines()]
        return Said(ran=True, note="\n".join(list(dict.fromkeys(reversed(lines)))[:_MOST_CALLS]) or None)
    if not files:
        return Said(ran=False, note="valgrind did not start it")
    refused = None
    for path in files:
        refused = refused or _refusal(path)
        said = _judged(path, rules)
        if said is not None:
            return said
    return Said(ran=refused is None, note=refused)


def _judged(path: Path, rules: Sequence[Rule[Crash]]) -> Said | None:
    try:
        with path.open("rb") as file:
            digest = log.digest(file, "valgrind's log")
    except (InputError, OSError):
        return None
    verdict = diagnose(redact.crash(told((), (digest,)).crash), rules).verdict
    if verdict is None or not any(one.kind == "sanitizer" for one in digest.messages + _of_pieces(digest)):
        return None
    rule = verdict.rule
    if rule == "sanitizer-report" and any(_is_bad_free(one) for one in digest.messages + _of_pieces(digest)):
        rule = "heap-corruption"
    return Said(ran=True, rule=rule, where=spelled(verdict.culprit), culprit=verdict.culprit, seen=verdict)


def _is_bad_free(message: Message) -> bool:
    return message.kind == "sanitizer" and message.fields.get("kind", "").startswith("bad-free")


def _of_pieces(digest: log.Digest) -> tuple[Message, ...]:
    return tuple(message for piece in digest.pieces for message in piece.crash.messages or ())


def _refusal(path: Path) -> str | None:
    text = _text(path)
    return next((why for words, why in _REFUSALS if words in text), None)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_LONGEST).decode(errors="replace")
    except OSError:
        return ""


def spelled(culprit: Culprit | None) -> str | None:
    """``overrun in op.cc:5``, as far as it is known."""
    if culprit is None:
        return None
    place = f"{Path(culprit.source).name}:{culprit.line}" if culprit.source and culprit.line else culprit.module
    return " in ".join(filter(None, [culprit.function, place])) or None


# ---------------------------------------------------------------- races


def _races(files: Sequence[Path], library: str) -> Said:
    """The first race between two accesses that are both the op's own.

    ThreadSanitizer does not see the locks of uninstrumented code, so a stack that begins elsewhere may be a false
    alarm.
    """
    others = 0
    if not files:
        # It begins each file with a line of its own, races or not.
        return Said(ran=False, note="ThreadSanitizer did not start in it")
    for path in files:
        text = _text(path)
        refused = next((why for words, why in _REFUSALS if words in text), None)
        if refused is not None:
            return Said(ran=False, note=refused)
        for parts in _reports(text):
            race = _of_op(parts, library)
            if race is None:
                others += 1
                continue
            one, other = race
            culprit = Culprit(function=one.function, module=library, source=one.source, line=one.line)
            against = f" against {_place(other)}" if _place(one) != _place(other) else ", twice"
            where = _place(one) + against
            return Said(ran=True, rule="data-race", where=where, culprit=culprit)
    note = f"{others} races of code that was not built with the check do not count" if others else None
    return Said(ran=True, note=note)


def _reports(text: str) -> Iterator[list[ReportPart]]:
    lines = text.splitlines()
    for at, line in enumerate(lines):
        match = sanitizers.HEAD.search(line)
        if match is None or sanitizers.kind_of(match["rest"]) != "data race":
            continue
        found = sanitizers.below(lines[at + 1 :])
        address = found.fields.get("address")
        if address is None or int(address, 16) >= _NULL_PAGE:  # two null pointers are no shared memory
            yield found.parts


def _of_op(parts: Sequence[ReportPart], library: str) -> tuple[Frame, Frame] | None:
    """Both frames, if both accesses are the op's own."""
    stacks = [part.frames for part in parts if part.role in {"access", "again"} and part.frames]
    if len(stacks) < 2:
        return None
    one, other = (_own(stack, library) for stack in stacks[:2])
    return (one, other) if one is not None and other is not None else None


def _own(stack: Sequence[Frame], library: str) -> Frame | None:
    """The op's frame that made the access, directly or through an intercepted function."""
    for frame in stack:
        if Path(frame.module or "").name == library:
            return frame
        if not sanitizers.is_of_tool(frame):
            return None
    return None


def _place(frame: Frame) -> str:
    place = f"{Path(frame.source).name}:{frame.line}" if frame.source and frame.line else frame.module
    # Without its arguments and the lambda in it: the line says which.
    return " in ".join(filter(None, [(frame.function or "").partition("(")[0], place]))


# ---------------------------------------------------------------- imports


def _imported(files: Sequence[Path]) -> list[str]:
    """Packages with native code that the first process imported, in order, without Python's own.

    Each line is an audit event, its subject, and an extension module's file. Then come the folders added to the path.
    """
    order: dict[str, bool] = {}
    places: list[str] = []
    for line in _text(files[0]).splitlines() if files else ():
        event, _, rest = line.partition("\t")
        name, _, path = rest.partition("\t")
        if event == "path":
            places.append(name)
            continue
        if event == "ctypes.dlopen":
            owner = next((one for one in reversed(order) if f"/{one}/" in name), None)
        else:
            owner = name.partition(".")[0]
            order.setdefault(owner, False)
        if owner is not None and (path or event == "ctypes.dlopen") and "/lib-dynload/" not in path:
            order[owner] = True
    names = [name for name, native in order.items() if native and name not in sys.stdlib_module_names]
    return [" ".join(names), *places] if names else []
