"""What was given on the command line: names of verdicts, codes, texts and files, in any mixture."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from necropsy.errors import InputError, NoInputError, UnknownCodeError
from necropsy.explanation import files, rule_page
from necropsy.formats import exit_status
from necropsy.formats.exit_status import ExitCode
from necropsy.model import Subject

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from necropsy.explanation import archives
    from necropsy.formats.error_names import ErrorName
    from necropsy.formats.log import Digest

Watch = Callable[[BinaryIO, str, "int | None"], "AbstractContextManager[BinaryIO]"]
"""Wraps a stream to show progress: gets the stream, its name, and its size in bytes if known."""

_ENOUGH = 4096
_LONGEST_NAME = 200
_CODES = frozenset({"signal", "Windows status", "fast-fail subcode"})
_ELF, _MINIDUMP = b"\x7fELF", b"MDMP"
_CORE = b"\x04\x00"
"""``e_type`` of a core."""
_OWN_JSON = re.compile(rb"^\s*\{\s*\"schema\":.{0,400}?\"tool\":\s*\{\s*\"name\":\s*\"necropsy\"", re.DOTALL)
_OWN_CAPSULE = re.compile(rb"PK\x03\x04.{26}report\.json", re.DOTALL)


@dataclass(frozen=True)
class Inputs:
    """All that was given. ``codes`` come from words and short texts, ``digests`` from texts, files and the pipe."""

    words: tuple[str, ...]
    rules: tuple[str, ...] = ()
    named: tuple[ErrorName, ...] = ()
    """Errors given by name: ``CUDNN_STATUS_NOT_INITIALIZED``, ``WinError 126``."""
    codes: tuple[ExitCode, ...] = ()
    digests: tuple[Digest, ...] = ()
    sources: tuple[str, ...] = ()
    """Name of each text: a path, ``standard input``, or ``the text``; an archive's texts share one."""

    @property
    def subject(self) -> Subject:
        """What a document on them is about."""
        if not self.digests:
            return Subject(kind="exit-status", text=" ".join(self.words))
        path = self.sources[0] if len(self.sources) == 1 and self.sources[0] not in {PIPE, TEXT} else None
        return Subject(kind="log", path=path, text=" ".join(code.spelled for code in self.codes) or None)


PIPE, TEXT = "standard input", "the text"


def read(words: Sequence[str], stdin: BinaryIO | None = None, watch: Watch | None = None) -> Inputs:
    """Sort and read ``words``: ``-`` is ``stdin``; existing files are read; the rest are names, codes and texts.

    Raises ``UnknownCodeError`` for other words, ``NoInputError`` for unreadable files, and ``InputError`` for files
    that are not texts (a core, a dump).
    """
    inputs = Inputs(words=tuple(words))
    rest: list[str] = []
    whole = " ".join(words)
    if len(words) > 1 and (named := _named(whole)) is not None and not _says_more(_digest_of(whole)):
        return replace(inputs, named=(named,))
    for word in words:
        if word == "-":
            inputs = _with(inputs, _stream(stdin, PIPE, None, watch), PIPE)
        elif (path := _file(word)) is not None:
            inputs = _with(inputs, _open(path, watch), str(path))
        elif rule_page.of_rule(word) is not None:
            inputs = replace(inputs, rules=(*inputs.rules, word))
        elif (digest := _text(word)) is not None:
            inputs = _with(inputs, [digest], TEXT)
        elif (named := _named(word)) is not None:
            inputs = replace(inputs, named=(*inputs.named, named))
        else:
            rest.append(word)
    try:
        return replace(inputs, codes=exit_status.read(rest)) if rest else inputs
    except UnknownCodeError as error:
        raise UnknownCodeError(f"{error}{_near(rest)}") from None


def _near(words: Sequence[str]) -> str:
    """``. Did you mean 'null-dereference'?`` if a rule's or signal's name is close."""
    import difflib

    known = {name.lower(): name for name in (*rule_page.rule_names(), *exit_status.signal_names())}
    found = [name for word in words for name in difflib.get_close_matches(word.lower()[:80], known, n=1, cutoff=0.7)]
    return f". Did you mean {known[found[0]]!r}?" if found else ""


def _with(inputs: Inputs, digests: Sequence[Digest], source: str) -> Inputs:
    return replace(inputs, digests=(*inputs.digests, *digests), sources=(*inputs.sources, source))


def _named(word: str) -> ErrorName | None:
    """Signals and Windows statuses are codes instead, whose pages say more."""
    if len(word) > _LONGEST_NAME or not re.search(r"[A-Za-z]{2}", word) or re.fullmatch(r"0[xX][0-9A-Fa-f]+", word):
        return None
    from necropsy.formats.error_names import meaning_of

    named = meaning_of(word)
    return None if named is None or named.kind in _CODES else named


def _text(word: str) -> Digest | None:
    """Program output is evidence rather than a code or name to look up."""
    if not any(char.isspace() for char in word.strip()):
        # One word that is no code may still be all that somebody has: OOMKilled.
        return None if _is_code(word) or _named(word) or not _says_more(found := _digest_of(word)) else found
    digest = _digest_of(word)
    if _says_more(digest) or "\n" in word.strip():
        return digest
    return None if _named(word) is not None or _is_code(word) else digest


def _is_code(word: str) -> bool:
    try:
        exit_status.read([word])
    except UnknownCodeError:
        return False
    return True


def _digest_of(text: str) -> Digest:
    return _digest(BytesIO(text.encode("utf-8", "surrogateescape")), TEXT)


def _says_more(digest: Digest) -> bool:
    return bool(digest.messages or digest.pieces)


def _file(word: str) -> Path | None:
    """Shell pipes (``<(dmesg)``) count too."""
    if len(word) > _ENOUGH or "\n" in word or "\0" in word:
        return None
    path = Path(word)
    try:
        there, folder, beside = path.exists(), path.is_dir(), path.parent.is_dir()
    except PermissionError as error:
        raise NoInputError(f"cannot read {word}: {error.strerror}") from error
    except OSError:
        return None
    if folder and word:
        raise NoInputError(f"{word} is a folder")
    if not word:
        return None
    if there:
        return path
    is_path, is_named_so = os.sep in word or "/" in word, path.suffix in _SUFFIXES
    # Words with blanks between them are a text, but where they lead to a folder.
    blank = any(char.isspace() for char in word)
    looks_like_one = (is_path and is_named_so and beside) if blank else (is_path or is_named_so)
    if looks_like_one:
        raise NoInputError(f"there is no file {word}")
    return None


_SUFFIXES = {
    ".log",
    ".txt",
    ".out",
    ".err",
    ".ips",
    ".crash",
    ".json",
    ".gz",
    ".xz",
    ".bz2",
    ".zst",
    ".zip",
    ".md",
    ".dmp",
}


def _open(path: Path, watch: Watch | None) -> Sequence[Digest]:
    try:
        file, size = files.opened(path)
        with file:
            if size is not None:
                _refuse_others(file.read(_ENOUGH), path)
                file.seek(0)
            return _stream(files.typed(file), str(path), size, watch)
    except OSError as error:
        raise NoInputError(f"cannot read {path}: {error.strerror or error}") from error


def _refuse_others(head: bytes, path: Path) -> None:
    if head.startswith(_ELF) and head[16:18] != _CORE:
        raise InputError(f"{path} is a program or a library; to see how it crashes: necropsy run COMMAND")
    if head.startswith((_ELF, _MINIDUMP)):
        raise InputError(f"{path} is a core or a dump: `necropsy open {path}` reads it")
    if _OWN_JSON.search(head) or _OWN_CAPSULE.match(head):
        raise InputError(f"{path} is a necropsy report: `necropsy show {path}` shows it")


def _stream(stream: BinaryIO | None, name: str, size: int | None, watch: Watch | None) -> Sequence[Digest]:
    if stream is None:
        raise NoInputError("there is no standard input to read")
    if name == PIPE:
        files.refuse_devices(stream, PIPE)
        stream = files.typed(stream)
    try:
        with watch(stream, name, size) if watch is not None else nullcontext(stream) as watched:
            return digests(watched, name)
    except OSError as error:
        raise NoInputError(f"cannot read {name}: {error.strerror or error}") from error


def digests(stream: BinaryIO, name: str, read_text: archives.Read | None = None) -> Sequence[Digest]:
    """The digest of a text, packed or not, or those of an archive's texts; ``read_text`` makes one of each text.

    Raises ``InputError`` where it cannot be unpacked, and ``OSError`` where it cannot be read.
    """
    from necropsy.explanation import archives

    made = read_text or _digest
    head = stream.read(len(archives.ZSTD))
    if not head.startswith((*archives.ZIP, archives.ZSTD)):
        return (made(archives.joined(head, stream), name),)
    if head.startswith(archives.ZSTD):
        return (archives.of_zstd(archives.joined(head, stream), name, made),)
    return archives.of_zip(stream if stream.seekable() else archives.joined(head, stream), name, made)


def _digest(stream: BinaryIO, name: str) -> Digest:
    from necropsy.formats.log import digest

    return digest(stream, said_place(name))


def said_place(name: str) -> str:
    """How places in the text of this name are called."""
    return "log" if name in {PIPE, TEXT} else Path(name).name
