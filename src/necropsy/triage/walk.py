"""Lists the files below folders: nothing is opened, links to folders are not followed, and one file is one file."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from necropsy.errors import NoInputError
from necropsy.model import SkippedInput
from necropsy.triage.deaths import storable


class FoundFile(msgspec.Struct, frozen=True, gc=False):
    """A regular file; ``path`` is absolute."""

    path: str
    size: int
    mtime_ns: int

    @property
    def name(self) -> str:
        """The path as it is stored and shown: bytes of the name that are not UTF-8 are escaped."""
        return storable(self.path)


class Walked(msgspec.Struct, frozen=True):
    """What lies below the paths, by name."""

    files: tuple[FoundFile, ...]
    skipped: tuple[SkippedInput, ...]


def walk(paths: Iterable[str | os.PathLike[str]], *, leave_out: Sequence[Path] = ()) -> Walked:
    """The files below ``paths``, each of which is a folder or a file, without the folders of ``leave_out``.

    Raises NoInputError where one of ``paths`` does not exist, or is a folder that may not be read.
    """
    walking = _Walk({_identity(one) for one in leave_out} - {None})
    for path in paths:
        walking.start(os.path.abspath(path))  # noqa: PTH100 - Path.absolute keeps `..`
    files = sorted(walking.files.values(), key=lambda one: one.path)
    return Walked(tuple(files), tuple(sorted(walking.skipped, key=lambda one: one.path)))


class _Walk:
    def __init__(self, leave_out: set[tuple[int, int] | None]) -> None:
        self.files: dict[tuple[int, int] | str, FoundFile] = {}
        self.skipped: list[SkippedInput] = []
        self._seen = leave_out

    def start(self, path: str) -> None:
        try:
            status = os.stat(path)  # noqa: PTH116 - Path cannot hold every name that scandir returns
            if not stat.S_ISDIR(status.st_mode):
                self._file(path, status)
                return
            os.scandir(path).close()
        except OSError as error:
            raise NoInputError(f"cannot read {storable(path)}: {error.strerror or error}") from error
        waiting = [path]
        while waiting:
            waiting += self._folder(waiting.pop())

    def _folder(self, path: str) -> list[str]:
        """Note the files of a folder; its own folders."""
        identity = _identity(path)
        if identity is None or identity in self._seen:
            return []
        self._seen.add(identity)
        below = []
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        below.append(entry.path)
                    else:
                        self._entry(entry)
        except OSError as error:
            self._skip(path, f"the folder cannot be read: {error.strerror or error}")
        return below

    def _entry(self, entry: os.DirEntry[str]) -> None:
        try:
            status = entry.stat()
        except OSError as error:
            gone = entry.is_symlink() and isinstance(error, FileNotFoundError)
            self._skip(entry.path, "a link to a file that does not exist" if gone else error.strerror or str(error))
            return
        if not stat.S_ISDIR(status.st_mode):  # it would be a link to one
            self._file(entry.path, status)

    def _file(self, path: str, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode):
            self._skip(path, f"it is {_KINDS.get(stat.S_IFMT(status.st_mode), 'a special file')}, not a file")
            return
        found = FoundFile(path, status.st_size, status.st_mtime_ns)
        # Windows' scandir gives no number; there, two links to a file are two files.
        key = (status.st_dev, status.st_ino) if status.st_ino else path
        known = self.files.get(key)
        if known is None or path < known.path:
            self.files[key] = found

    def _skip(self, path: str, why: str) -> None:
        self.skipped.append(SkippedInput(path=storable(path), why=why))


_KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}


def _identity(path: str | os.PathLike[str]) -> tuple[int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - as above
    except OSError:
        return None
    return status.st_dev, status.st_ino
