"""The commands for packages that conda has installed, run by conda itself on a channel in a folder: nothing is fetched.

Skipped where there is no conda, which PyPI does not have. From its sources (github.com/conda/conda, with pycosat):
a script named ``conda`` on PATH that runs ``python -m conda``.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from doctor_building import NATIVE, Venv, library, needs_compiler, versions
from necropsy.model import Diagnosis

CONDA = shutil.which("conda")
pytestmark = [
    needs_compiler,
    pytest.mark.skipif(CONDA is None or os.name == "nt", reason="conda is not installed"),
]


def package(channel: Path, name: str, version: str, given: Mapping[str, str | bytes]) -> tuple[str, dict[str, object]]:
    """Write a package of conda's; its row in the channel's index."""
    files = {path: content.encode() if isinstance(content, str) else content for path, content in given.items()}
    about: dict[str, object] = {"name": name, "version": version, "build": "0", "build_number": 0, "depends": []}
    about |= {"subdir": "noarch", "noarch": "generic"}
    digests = {path: hashlib.sha256(content).hexdigest() for path, content in files.items()}
    paths = [
        {"_path": path, "path_type": "hardlink", "sha256": digests[path], "size_in_bytes": len(content)}
        for path, content in files.items()
    ]
    members = {
        **files,
        "info/index.json": json.dumps(about).encode(),
        "info/files": "".join(f"{path}\n" for path in files).encode(),
        "info/paths.json": json.dumps({"paths_version": 1, "paths": paths}).encode(),
    }
    archive = channel / "noarch" / f"{name}-{version}-0.tar.bz2"
    with tarfile.open(archive, "w:bz2") as packed:
        for path, content in members.items():
            member = tarfile.TarInfo(path)
            member.size = len(content)
            packed.addfile(member, io.BytesIO(content))
    data = archive.read_bytes()
    sums = {"md5": hashlib.md5(data).hexdigest(), "sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    return archive.name, {**about, **sums}


class Conda:
    """An environment of conda's, with a channel that has all packages of these tests."""

    def __init__(self, folder: Path) -> None:
        self.venv = Venv.make(folder / "env")
        (self.venv.folder / "conda-meta").mkdir()
        (self.venv.folder / "conda-meta" / "history").touch()
        channel = folder / "channel"
        (channel / "noarch").mkdir(parents=True)
        (channel / "linux-64").mkdir()
        rows = [
            self.distribution(channel, "alpha", "1.0", ["beta<2"]),
            self.distribution(channel, "beta", "1.5"),
            self.distribution(channel, "beta", "2.0"),
            self.distribution(channel, "solver", "1.0", conda="py-solver"),
            self.runtime(channel, "9.3.0", "GLIBCXX_3.4.1"),
            self.runtime(channel, "13.2.0", "GLIBCXX_3.4.30"),
            self.distribution(channel, "opencv-python", "4.10.0", modules=["cv2"]),
            self.distribution(channel, "opencv-python-headless", "4.11.0", modules=["cv2"], conda="py-opencv-headless"),
        ]
        for name, known in (("noarch", dict(rows)), ("linux-64", {})):
            index = {"info": {"subdir": name}, "packages": known, "packages.conda": {}, "repodata_version": 1}
            (channel / name / "repodata.json").write_text(json.dumps(index))
        url = channel.as_uri()
        settings: dict[str, object] = {
            "channels": [url],
            "default_channels": [url],
            "pkgs_dirs": [str(folder / "packages")],
        }
        settings |= {"always_yes": True, "auto_update_conda": False, "notify_outdated_conda": False, "offline": False}
        if "NECROPSY_TEST_CONDA_SOLVER" in os.environ:
            settings["solver"] = os.environ["NECROPSY_TEST_CONDA_SOLVER"]
        (folder / "condarc").write_text(json.dumps(settings))
        self.variables = {**os.environ, "CONDARC": str(folder / "condarc"), "HOME": str(folder)}

    def distribution(
        self,
        channel: Path,
        name: str,
        version: str,
        requires: Sequence[str] = (),
        *,
        modules: Sequence[str] = (),
        conda: str | None = None,
    ) -> tuple[str, dict[str, object]]:
        site = str(self.venv.site.relative_to(self.venv.folder))
        about = f"{site}/{name}-{version}.dist-info"
        lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {one}" for one in requires)]
        files = {f"{site}/{one}/__init__.py": f"version = {version!r}\n" for one in modules or [name]}
        files |= {f"{site}/{one}/core.py": f"# {version}\n" for one in modules}
        files |= {f"{about}/METADATA": "\n".join(["Metadata-Version: 2.1", *lines, ""]), f"{about}/INSTALLER": "conda"}
        rows = "".join(f"{path.removeprefix(f'{site}/')},,{len(text)}\n" for path, text in files.items())
        return package(channel, conda or name, version, {**files, f"{about}/RECORD": rows})

    def runtime(self, channel: Path, release: str, version: str) -> tuple[str, dict[str, object]]:
        """What stands for the C++ runtime, and has this version of symbols."""
        name = "libstdc++.so.6"
        built = library(
            channel.parent / release / name,
            "int f(void) { return 1; }",
            f"-Wl,-soname,{name}",
            versions(channel.parent / f"{release}.map", version),
        )
        return package(channel, "libstdcxx-ng", release, {f"lib/{name}": built.read_bytes()})

    def run(self, command: str) -> None:
        """The command, as it would be pasted into a shell."""
        done = subprocess.run(
            ["sh", "-c", command], env=self.variables, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def install(self, *names: str) -> None:
        self.run(f"conda install --prefix '{self.venv.folder}' {' '.join(names)}")

    def repaired(self, finding: Diagnosis) -> str:
        """Run the first fix; its command."""
        command = finding.fixes[0].command or ""
        assert command.startswith(f"conda {command.split()[1]} --prefix ")
        self.run(command)
        return command


@pytest.fixture
def conda(tmp_path: Path) -> Conda:
    return Conda(tmp_path)


def test_a_requirement_that_is_not_met(conda: Conda) -> None:
    conda.install("alpha", "beta=2.0")
    command = conda.repaired(conda.venv.finding("env-package-conflict", "alpha"))
    assert command.endswith("'beta<2'")
    assert conda.venv.examine("alpha").findings == ()


def test_a_file_that_is_gone(conda: Conda) -> None:
    conda.install("py-solver")
    (conda.venv.site / "solver" / "__init__.py").unlink()
    command = conda.repaired(conda.venv.finding("env-file-missing", "solver"))
    assert command.endswith("--force-reinstall py-solver==1.0")
    assert conda.venv.examine("solver").findings == ()


def test_two_packages_with_the_same_files(conda: Conda) -> None:
    conda.install("opencv-python", "py-opencv-headless")
    finding = conda.venv.finding("env-duplicate-distribution", "opencv-python", "opencv-python-headless")
    conda.repaired(finding)
    left = {one.name for one in conda.venv.site.glob("opencv*")}
    assert len(left) == 1
    assert [one.rule for one in conda.venv.examine(next(iter(left)).partition("-4")[0]).findings] == []


def test_an_old_cpp_runtime_of_condas(conda: Conda) -> None:
    """What is installed already stays as it is, unless a newer version is asked for."""
    conda.install("py-solver", "libstdcxx-ng=9.3")
    newer = conda.venv.folder.parent / "13.2.0" / "libstdc++.so.6"
    code, runpath = "int f(void); int g(void) { return f(); }", f"-Wl,-rpath,{conda.venv.folder}/lib"
    built = library(newer.with_name("_c.so"), code, str(newer), runpath, "-Wl,--enable-new-dtags")
    conda.venv.install("viewer", "1.0", {"viewer/__init__.py": "", "viewer/_c.so": built}, tags=NATIVE)
    newer.unlink()
    command = conda.repaired(conda.venv.finding("env-libstdcxx-too-old", "viewer", "solver"))
    assert command.endswith("'libstdcxx-ng>=12'")
    assert conda.venv.examine("viewer", "solver").findings == ()
