"""Virtual environments with small distributions and libraries of our own making, whole or broken in one way."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from necropsy.examination import Asked, examined
from necropsy.model import Diagnosis, Document

COMPILER = shutil.which("gcc")
needs_compiler = pytest.mark.skipif(COMPILER is None or sys.platform != "linux", reason="it builds ELF files with gcc")
CP = f"cp{sys.version_info.major}{sys.version_info.minor}"
PURE, NATIVE = ("py3-none-any",), (f"{CP}-{CP}-linux_{os.uname().machine if sys.platform != 'win32' else 'amd64'}",)
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")


OF_THE_MACHINE = frozenset(
    {
        *("env-address-space-limit", "env-core-dumps-off", "env-disk-full", "env-memory-limit", "env-no-swap"),
        *("env-open-files-limit", "env-process-limit", "env-ptrace-restricted", "env-shared-memory-small"),
        "env-stack-too-small",
    }
)
"""Rules whose findings depend on the machine that the tests run on, whatever the packages are."""


def library(path: Path, code: str = "int f(void) { return 1; }", *flags: str) -> Path:
    """A shared library of C code at ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    words = ["gcc", "-shared", "-fPIC", "-x", "c", "-o", str(path), "-", "-x", "none", *flags]
    subprocess.run(words, input=code.encode(), check=True)
    return path


def versions(path: Path, *names: str) -> str:
    """The linker's option that gives the symbol ``f`` the first of these versions, and the library all of them."""
    text = "".join(f"{name} {{ {'global: f; local: *;' if not place else ''} }};\n" for place, name in enumerate(names))
    path.write_text(text)
    return f"-Wl,--version-script={path}"


@dataclass
class Venv:
    """A virtual environment without packages; pip is that of the interpreter that runs the tests."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> Venv:
        """Make one in ``folder``."""
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(folder)], check=True)
        return cls(folder)

    @property
    def python(self) -> str:
        """Its interpreter."""
        return str(self.folder / "bin" / "python")

    @property
    def site(self) -> Path:
        """Its site-packages."""
        return self.folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"

    def add_pip(self) -> None:
        """Make the interpreter's own pip importable."""
        import pip

        source = Path(pip.__file__).parent
        (self.site / "pip").symlink_to(source)
        for info in source.parent.glob("pip-*.dist-info"):
            (self.site / info.name).symlink_to(info)

    def install(
        self,
        name: str,
        version: str,
        files: Mapping[str, str | Path] | None = None,
        *,
        requires: Sequence[str] = (),
        tags: Sequence[str] = PURE,
        python: str | None = None,
        to: Path | None = None,
    ) -> Path:
        """Install a distribution as pip would; the folder that it is in. ``files``: contents, or a file to copy."""
        site = to or self.site
        wanted = {f"{name}/__init__.py": f"version = {version!r}\n"} if files is None else files
        for path, content in {**wanted, **info(name, version, requires, tags, python)}.items():
            target = site / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, Path):
                shutil.copyfile(content, target)
            else:
                target.write_text(content)
        folder = f"{name}-{version}.dist-info"
        listed = [*wanted, f"{folder}/METADATA", f"{folder}/WHEEL"]
        rows = [f"{path},sha256={digest((site / path).read_bytes())},{(site / path).stat().st_size}" for path in listed]
        (site / folder / "RECORD").write_text("\n".join([*rows, f"{folder}/RECORD,,", f"{folder}/INSTALLER,,"]) + "\n")
        (site / folder / "INSTALLER").write_text("pip\n")
        return site

    def examine(
        self,
        *packages: str,
        deep: bool = False,
        ops: Sequence[str] = (),
        probe: bool = False,
        variables: Mapping[str, str] | None = None,
    ) -> Document:
        """What doctor says of it, without what it says of the machine."""
        asked = Asked(python=self.python, packages=packages, deep=deep, ops=ops, probe=probe)
        document = examined(asked, {**os.environ, **(variables or {})})
        findings = tuple(one for one in document.findings if one.rule not in OF_THE_MACHINE)
        return msgspec.structs.replace(document, findings=findings)

    def finding(
        self, rule: str, *packages: str, deep: bool = False, variables: Mapping[str, str] | None = None
    ) -> Diagnosis:
        """The one finding that there is: nothing else is wrong."""
        document = self.examine(*packages, deep=deep, variables=variables)
        assert [one.rule for one in document.findings] == [rule], [one.summary for one in document.findings]
        return document.findings[0]

    def repair(self, finding: Diagnosis, wheels: Path | None = None, *, fix: int = 0) -> None:
        """Run the command of its first fix, or of another one, as it would be pasted."""
        command = finding.fixes[fix].command
        assert command is not None
        more = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        done = subprocess.run(
            command, shell=True, env={**os.environ, **more}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)


def after(finding: Diagnosis, variables: Mapping[str, str]) -> dict[str, str]:
    """``variables``, as the command of the finding's first fix leaves them in a shell; those that it unsets are gone."""
    command = finding.fixes[0].command
    assert command is not None
    words = ["bash", "-c", f"{command}; env -0"]
    done = subprocess.run(words, env={**os.environ, **variables}, capture_output=True, text=True, check=True)
    rows = dict(row.split("=", 1) for row in done.stdout.split("\0") if "=" in row)
    return {name: rows[name] for name in variables if name in rows}


def flags(finding: Diagnosis, *, fix: int = 0) -> list[str]:
    """The flags for the compiler that the text of a fix names."""
    found = re.findall(r"(?<!\S)-[\w+,=-]*[\w+]", finding.fixes[fix].text)
    assert found, finding.fixes[fix].text
    return found


def info(
    name: str, version: str, requires: Sequence[str], tags: Sequence[str], python: str | None = None
) -> dict[str, str]:
    """METADATA and WHEEL of a distribution."""
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Python: {python}"] if python is not None else []
    lines += [f"Requires-Dist: {one}" for one in requires]
    wheel = ["Wheel-Version: 1.0", "Generator: tests", "Root-Is-Purelib: true", *(f"Tag: {tag}" for tag in tags)]
    folder = f"{name}-{version}.dist-info"
    return {f"{folder}/METADATA": "\n".join(lines) + "\n\n", f"{folder}/WHEEL": "\n".join(wheel) + "\n"}


def wheel(
    folder: Path,
    name: str,
    version: str,
    files: Mapping[str, str | Path] | None = None,
    *,
    tags: Sequence[str] = PURE,
    requires: Sequence[str] = (),
) -> None:
    """A wheel in ``folder``, for pip to install."""
    folder.mkdir(exist_ok=True)
    wanted = {f"{name}/__init__.py": f"version = {version!r}\n"} if files is None else files
    rows = []
    with zipfile.ZipFile(folder / f"{name}-{version}-{tags[0]}.whl", "w") as archive:
        for path, content in {**wanted, **info(name, version, requires, tags)}.items():
            data = content.read_bytes() if isinstance(content, Path) else content.encode()
            archive.writestr(path, data)
            rows.append(f"{path},sha256={digest(data)},{len(data)}")
        record = f"{name}-{version}.dist-info/RECORD"
        archive.writestr(record, "\n".join([*rows, f"{record},,"]) + "\n")


def digest(data: bytes) -> str:
    """A SHA-256 as RECORD has it."""
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
