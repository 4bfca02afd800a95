"""The folder in which trials run: a copy of the user's, put in order before each trial."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from necropsy.errors import NecropsyError
from necropsy.temporary_folders import TemporaryFolder, remove

PREFIX = "necropsy-reduce-"
_LARGE = 16 << 20
"""Files from this size on are not copied: a link leads to the user's own, which cannot be written to."""
_MOST_BYTES = 1 << 30
"""After this many bytes are copied, further files are linked, except Python files."""
_MOST_FILES = 100_000
_NOT_COPIED = frozenset({".git", ".hg", ".svn", "__pycache__", ".venv", "venv", "node_modules", ".tox", ".mypy_cache"})
_Stamp = tuple[int, int, int]


@dataclass
class Copied:
    """What became of the user's folder: contents of plain files by relative path, and what was left out."""

    files: dict[str, bytes] = field(default_factory=dict)
    linked: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


class Workspace:
    """A temporary folder with ``work``, the copy, and ``home``, ``tmp`` and ``logs`` beside it."""

    def __init__(self) -> None:
        self._folder = TemporaryFolder(PREFIX)
        self.base = self._folder.path
        self.work, self.home, self.tmp, self.logs = (self.base / name for name in ("work", "home", "tmp", "logs"))
        for folder in (self.work, self.home, self.tmp, self.logs):
            folder.mkdir()
        self._written: dict[str, tuple[bytes, _Stamp]] = {}
        self._links: set[str] = set()

    @property
    def output(self) -> Path:
        """What a trial writes to stdout and stderr."""
        return self.logs / "output"

    @property
    def notes(self) -> Path:
        """What an observed run notes."""
        return self.logs / "notes"

    def writable(self) -> list[str]:
        """The folders that a trial may write to."""
        return [str(self.work), str(self.home), str(self.tmp), str(self.logs)]

    def environment(self) -> dict[str, str]:
        """Variables that keep a trial's own files here."""
        return {
            "HOME": str(self.home),
            "TMPDIR": str(self.tmp),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def copy(self, root: Path) -> Copied:
        """Take over the user's folder. Raises NecropsyError where it has too many files, or the disk is full."""
        result = Copied()
        copied = 0
        linked: list[str] = []
        left_out: list[str] = []
        for folder, names, files in os.walk(root):
            names[:] = sorted(name for name in names if name not in _NOT_COPIED)
            here = os.path.relpath(folder, root)
            for name in sorted(files):
                path = os.path.normpath(os.path.join(here, name))  # noqa: PTH118 - thousands of files
                if len(result.files) + len(linked) >= _MOST_FILES:
                    raise NecropsyError(f"{root} has more than {_MOST_FILES:,} files: run it in a folder of its own")
                try:
                    kind = os.stat(os.path.join(folder, name))  # noqa: PTH116, PTH118
                    if not stat.S_ISREG(kind.st_mode):
                        left_out.append(path)
                    elif kind.st_size >= _LARGE or (copied > _MOST_BYTES and not name.endswith(".py")):
                        self._link(path, Path(folder, name))
                        linked.append(path)
                    else:
                        copied += kind.st_size
                        result.files[path] = Path(folder, name).read_bytes()
                except OSError as error:
                    if error.errno == 28:  # ENOSPC
                        raise NecropsyError(f"no space left below {self.base}") from error
                    left_out.append(path)
            for name in names:
                (self.work / here / name).mkdir(exist_ok=True)
        result.linked, result.left_out = tuple(linked), tuple(left_out)
        return result

    def _link(self, path: str, target: Path) -> None:
        place = self.work / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target.resolve())
        self._links.add(path)

    def twin(self) -> Workspace:
        """Another workspace with the same folders and links, for trials at the same time."""
        other = Workspace()
        for folder, names, _ in os.walk(self.work):
            for name in names:
                place = Path(folder, name)
                if not place.is_symlink():
                    (other.work / place.relative_to(self.work)).mkdir(exist_ok=True)
        for path, target in self.links():
            other._link(path, target)
        return other

    def links(self) -> list[tuple[str, Path]]:
        """The large files that are links, and where they lead."""
        return [(path, (self.work / path).resolve()) for path in sorted(self._links)]

    def keep_links(self, opened: Collection[str]) -> None:
        """Remove the links that the program does not open."""
        for path in self._links - set(opened):
            remove(self.work / path)
            self._links.discard(path)

    def put(self, files: Mapping[str, bytes]) -> None:
        """Make the copy have these files with these contents and no others, whatever a trial has done to it.

        Raises NecropsyError where the disk is full.
        """
        try:
            self._put(files)
        except OSError as error:
            raise NecropsyError(f"{self.work} cannot be written: {error.strerror}") from error
        for folder in (self.home, self.tmp):
            _empty(folder)

    def _put(self, files: Mapping[str, bytes]) -> None:
        there = self._scan(files)
        for path, data in files.items():
            known = self._written.get(path)
            if known is not None and known[0] == data and there.get(path) == known[1]:
                continue
            place = self.work / path
            remove(place)
            _make_folder(place.parent, self.work)
            place.write_bytes(data)
            self._written[path] = (data, _stamp(os.lstat(place)))
        for path in self._written.keys() - files.keys():
            del self._written[path]

    def _scan(self, files: Mapping[str, bytes]) -> dict[str, _Stamp]:
        """The plain files that are there; what does not belong there is removed."""
        found: dict[str, _Stamp] = {}
        waiting = [""]
        while waiting:
            here = waiting.pop()
            folder = self.work / here
            with contextlib.suppress(OSError):
                folder.chmod(0o700)
            for entry in os.scandir(folder):
                path = f"{here}/{entry.name}" if here else entry.name
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(path)
                elif path in self._links and entry.is_symlink():
                    continue
                elif path in files and entry.is_file(follow_symlinks=False):
                    found[path] = _stamp(entry.stat(follow_symlinks=False))
                else:
                    remove(self.work / path)
        return found

    def close(self) -> None:
        """Remove it all."""
        self._folder.close()


def _stamp(status: os.stat_result) -> _Stamp:
    # Not the size and time alone: a program can set both. What was written again has another inode or change time.
    return status.st_ino, status.st_size, status.st_ctime_ns


def _empty(folder: Path) -> None:
    for entry in os.scandir(folder):
        remove(Path(entry.path))


def _make_folder(folder: Path, root: Path) -> None:
    """A folder below ``root``, also where a trial has put a file in its place."""
    for part in (*reversed(folder.relative_to(root).parents), folder.relative_to(root)):
        place = root / part
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            remove(place)
        place.mkdir(exist_ok=True)
