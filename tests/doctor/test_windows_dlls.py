"""What packages for Windows need of Microsoft's C++ runtime and of cuDNN, in images written here; and once under wine."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import wine
from necropsy.doctor import dlls
from necropsy.examine import examine
from necropsy.model import Diagnosis, Distribution, Environment, Interpreter
from necropsy.rules import environment_rules_named
from writers import pe as write

LOCKS, INITIALISES = ("_Mtx_lock", "_Mtx_unlock"), ("_Mtx_lock", "_Mtx_init_in_situ")
RULES = ("env-msvc-runtime-too-old", "env-zlibwapi-missing")


def image(
    path: Path,
    *,
    version: Sequence[int] = (),
    linker: tuple[int, int] = (14, 44),
    has: Sequence[str] = (),
    takes: Mapping[str, Sequence[str]] | None = None,
    text: bytes = b"",
) -> Path:
    """A DLL with these exports and imports, and the version in its resources."""
    made = write.Writer(flags=0x2022, linker=linker)
    at = made.section(".text", b"\xc3" * 64 + text, write.CODE)
    if has:
        made.exports(dict.fromkeys(has, at))
    if takes:
        made.takes(takes)
    if version:
        made.version(*version)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(made.written())
    return path


@dataclass
class Machine:
    """A Windows below ``root``: System32, Python's folder and the installation's packages."""

    root: Path
    conda: bool = False
    packages: dict[str, list[str]] = field(default_factory=dict)

    @property
    def system(self) -> Path:
        return self.root / "Windows" / "System32"

    @property
    def python(self) -> Path:
        return self.root / "Python311"

    def brings(self, package: str, path: Path) -> None:
        self.packages.setdefault(package, []).append(str(path))

    def extension(self, package: str, functions: Sequence[str], linker: tuple[int, int] = (14, 44)) -> None:
        path = self.root / "site" / package / "core.pyd"
        self.brings(package, image(path, linker=linker, takes={"MSVCP140.dll": functions}))

    def environment(self, **variables: str) -> Environment:
        interpreter = Interpreter(
            executable=f"{self.python}/python.exe",
            version="3.11.9",
            prefix=str(self.python),
            base_prefix=str(self.python),
            machine="AMD64",
            system="win32",
            conda=self.conda,
        )
        found = dlls.read(self.packages, (), interpreter, {"SystemRoot": str(self.root / "Windows"), **variables})
        return Environment(
            interpreter=interpreter,
            executable=interpreter.executable,
            distributions=tuple(
                Distribution(name=name, version="1.0", location=str(self.root / "site"), checked=True)
                for name in self.packages
            ),
            dlls=found,
        )

    def findings(self, **variables: str) -> tuple[Diagnosis, ...]:
        return examine(self.environment(**variables), environment_rules_named(RULES)).findings

    def finding(self, **variables: str) -> Diagnosis:
        (one,) = self.findings(**variables)
        return one


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    image(made.python / "vcruntime140.dll", version=(14, 38, 33126, 1), has=["memcpy"])
    return made


def test_a_runtime_that_is_not_installed(machine: Machine) -> None:
    machine.extension("solver", LOCKS)
    finding = machine.finding()
    assert finding.severity == "error"
    assert "`msvcp140.dll` cannot be found, and solver 1.0 needs it" in finding.summary
    assert finding.fixes[0].command == "winget install --exact --id Microsoft.VCRedist.2015+.x64"
    # What the fix installs.
    image(machine.system / "msvcp140.dll", version=(14, 44, 35211, 0), has=LOCKS)
    assert machine.findings() == ()


def test_a_runtime_that_lacks_a_function(machine: Machine) -> None:
    machine.extension("solver", [*LOCKS, "_Thrd_sleep_for"])
    image(machine.system / "msvcp140.dll", version=(14, 16, 27033, 0), has=LOCKS)
    finding = machine.finding()
    assert finding.severity == "error"
    assert finding.confidence == "certain"
    assert "(14.16.27033.0) is too old for solver 1.0: it lacks `_Thrd_sleep_for`" in finding.summary
    image(machine.system / "msvcp140.dll", version=(14, 44, 35211, 0), has=[*LOCKS, "_Thrd_sleep_for"])
    assert machine.findings() == ()


@pytest.mark.parametrize(
    ("functions", "linker", "runtime", "severity"),
    [
        (LOCKS, (14, 44), (14, 38, 33130, 0), "error"),
        (LOCKS, (14, 44), (14, 40, 33810, 0), None),
        (LOCKS, (14, 39), (14, 38, 33130, 0), None),
        (INITIALISES, (14, 44), (14, 38, 33130, 0), None),
        (INITIALISES, (14, 44), (14, 29, 30139, 0), "note"),
        (LOCKS, (2, 44), (14, 29, 30139, 0), None),
    ],
)
def test_mutexes_that_an_older_runtime_cannot_lock(
    machine: Machine,
    functions: tuple[str, ...],
    linker: tuple[int, int],
    runtime: tuple[int, ...],
    severity: str | None,
) -> None:
    machine.extension("solver", functions, linker)
    image(machine.system / "msvcp140.dll", version=runtime, has=sorted({*LOCKS, *INITIALISES}))
    assert [one.severity for one in machine.findings()] == ([severity] if severity else [])


def test_pythons_own_older_vcruntime_is_normal(machine: Machine) -> None:
    path = machine.root / "site" / "solver" / "core.pyd"
    machine.brings("solver", image(path, linker=(14, 51), takes={"VCRUNTIME140.dll": ["memcpy"]}))
    assert machine.findings() == ()


def test_a_file_for_another_processor_is_not_loaded(machine: Machine) -> None:
    """As debuggers bring one for each processor."""
    path = machine.root / "site" / "attach" / "attach_x86.dll"
    made = write.Writer(flags=0x2022, machine=0x14C, linker=(14, 44))
    made.takes({"MSVCP140.dll": LOCKS})
    path.parent.mkdir(parents=True)
    path.write_bytes(made.written())
    machine.brings("attach", path)
    assert machine.environment().dlls == ()
    assert machine.findings() == ()


def test_an_old_copy_that_a_package_brings(machine: Machine) -> None:
    machine.extension("solver", LOCKS)
    machine.brings("solver", image(machine.root / "site/solver/msvcp140.dll", version=(14, 29, 30139, 0), has=LOCKS))
    image(machine.system / "msvcp140.dll", version=(14, 44, 35211, 0), has=LOCKS)
    finding = machine.finding()
    assert shlex.split(finding.fixes[0].command or "")[-3:] == ["install", "--upgrade", "solver"]
    assert "found in own folder" in {seen for one in finding.evidence for seen in one.seen.split(", ")}


def test_a_copy_with_another_name_is_the_packages_own(machine: Machine) -> None:
    """As delvewheel renames them: no other file has that name."""
    name = "msvcp140-a4c2229bdc2a2a630acdc095b4d86008.dll"
    machine.brings("solver", image(machine.root / "site/solver/core.pyd", takes={name: LOCKS}))
    machine.brings("solver", image(machine.root / "site/solver.libs" / name, version=(14, 29, 30139, 0), has=LOCKS))
    assert machine.findings() == ()


def test_cudnn_8_without_its_zlib(machine: Machine) -> None:
    cudnn = machine.root / "cudnn" / "bin"
    image(cudnn / "cudnn64_8.dll", version=(8, 9, 5, 29), text=b"zlibwapi.dll\0Could not locate %s.")
    path = machine.root / "site/onnxruntime/providers.dll"
    machine.brings("onnxruntime-gpu", image(path, takes={"cudnn64_8.dll": ["cudnnCreate"]}))
    assert machine.findings(Path=f"C:\\Tools;{cudnn}") == (), "no driver, so nothing runs on a GPU"
    image(machine.system / "nvcuda.dll", version=(31, 0, 15, 3623))
    assert machine.findings() == (), "no cuDNN is another matter"
    finding = machine.finding(Path=f"C:\\Tools;{cudnn}")
    assert finding.rule == "env-zlibwapi-missing"
    assert "cuDNN 8.9.5.29 needs it" in finding.summary
    assert str(cudnn) in finding.fixes[0].text
    image(cudnn / "zlibwapi.dll")
    assert machine.findings(Path=f"C:\\Tools;{cudnn}") == ()


def test_cudnn_9_has_zlib_in_it(machine: Machine) -> None:
    image(machine.system / "nvcuda.dll")
    machine.brings("nvidia-cudnn-cu12", image(machine.root / "site/nvidia/cudnn/bin/cudnn64_9.dll"))
    assert machine.findings() == ()


def test_conda_installs_what_is_missing(machine: Machine) -> None:
    machine.conda = True
    machine.extension("solver", LOCKS)
    image(machine.system / "nvcuda.dll")
    machine.brings("cudnn", image(machine.python / "Library/bin/cudnn64_8.dll", text=b"zlibwapi.dll\0"))
    commands = [one.fixes[0].command or "" for one in machine.findings()]
    assert [one.split()[:2] for one in commands] == [["conda", "update"], ["conda", "install"]]
    image(machine.python / "msvcp140.dll", version=(14, 44, 35211, 0), has=LOCKS)
    image(machine.python / "Library/bin/zlibwapi.dll")
    assert machine.findings() == ()


@wine.needed
def test_doctor_under_wine(tmp_path: Path) -> None:
    """Windows' own Python, its folder first among those searched; wine's own runtime has no version."""
    base = wine.python()
    folder = tmp_path / "python"
    folder.mkdir()
    for file in base.parent.iterdir():
        if file.suffix == "._pth":
            (folder / file.name).write_text(file.read_text() + wine.windows_path(tmp_path / "site") + "\n")
        else:
            (folder / file.name).symlink_to(file.resolve())
    about = tmp_path / "site" / "solver-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: solver\nVersion: 1.0\n")
    (about / "RECORD").write_text("solver/core.pyd,,\n")
    image(tmp_path / "site/solver/core.pyd", takes={"MSVCP140.dll": LOCKS})

    def found() -> list[str]:
        words = ("doctor", "--no-probe", "--format", "json", "--python", wine.windows_path(folder / "python.exe"))
        done = wine.run(base, "-m", "necropsy", *words, "solver", env={"NECROPSY_KEEP": "0"})
        assert done.code32 in {0, 1}, done.stderr
        return [one["summary"] for one in json.loads(done.stdout)["findings"] if one["rule"] in RULES]

    image(folder / "msvcp140.dll", version=(14, 29, 30139, 0), has=LOCKS)
    (summary,) = found()
    assert summary.endswith(
        "(14.29.30139.0) is too old for solver 1.0, which was built with 14.44: a null pointer is read when it locks a mutex (0xC0000005)."
    )
    (folder / "msvcp140.dll").unlink()
    assert found() == []
    shutil.rmtree(folder)
