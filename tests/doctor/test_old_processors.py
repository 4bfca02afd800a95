"""Packages that were compiled for newer processors: a small library of each is read, and nothing is run."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from pathlib import Path

import pytest

from doctor_building import NATIVE, OF_THE_MACHINE, Venv, library, needs_compiler, wheel
from necropsy.doctor.collect import Wanted, collect
from necropsy.examine import examine
from necropsy.model import Diagnosis
from necropsy.rules import environment_rules

pytestmark = [
    needs_compiler,
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="features of x86-64 processors"),
]
CODE = "void scale(float *x, int n) { for (int i = 0; i < n; i++) x[i] = x[i] * 3 + 1; }"
ASKS = 'int fits(void) { return __builtin_cpu_supports("avx2"); }'
NEW = ("-O3", "-mavx2", "-mfma")
WESTMERE = "model name\t: Westmere\nflags\t\t: fpu cx16 pni ssse3 sse4_1 sse4_2 popcnt\n"
HASWELL = "model name\t: Haswell\nflags\t\t: fpu pni ssse3 sse4_1 sse4_2 popcnt avx avx2 fma bmi1 bmi2\n"


@pytest.fixture
def venv(tmp_path: Path) -> Venv:
    return Venv.make(tmp_path / "env")


def brings(venv: Venv, tmp: Path, **libraries: tuple[str, ...]) -> None:
    """Install a package with these libraries; each with its code and the compiler's options."""
    files: dict[str, str | Path] = {"solver/__init__.py": ""}
    for name, (code, *flags) in libraries.items():
        files[f"solver/{name}.so"] = library(tmp / f"built/{name}.so", code, *flags)
    venv.install("solver", "1.0", files, tags=NATIVE)


def findings(venv: Venv, processor: str) -> list[Diagnosis]:
    root = venv.folder.parent / "root"
    (root / "proc").mkdir(parents=True, exist_ok=True)
    (root / "proc/cpuinfo").write_text(processor)
    wanted = Wanted(python=venv.python, packages=("solver",), variables=dict(os.environ), root=str(root))
    answers = examine(collect(wanted), environment_rules())
    return [one for one in answers.findings if one.rule not in OF_THE_MACHINE]


def source(folder: Path, built: Path) -> None:
    """A source distribution of the package, which is built by taking a wheel out of it."""
    project = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    backend = (
        "import pathlib, shutil\n"
        "def build_wheel(folder, settings=None, metadata=None):\n"
        "    (one,) = pathlib.Path().glob('*.whl')\n"
        "    shutil.copy(one, folder)\n"
        "    return one.name\n"
    )
    texts = {
        "pyproject.toml": project,
        "backend.py": backend,
        "PKG-INFO": "Metadata-Version: 2.1\nName: solver\nVersion: 1.0\n",
    }
    with tarfile.open(folder / "solver-1.0.tar.gz", "w:gz") as archive:
        for name, text in texts.items():
            row = tarfile.TarInfo(f"solver-1.0/{name}")
            row.size = len(text)
            archive.addfile(row, io.BytesIO(text.encode()))
        archive.add(built, f"solver-1.0/{built.name}")


def test_a_package_that_was_compiled_for_avx(venv: Venv, tmp_path: Path) -> None:
    brings(venv, tmp_path, core=(CODE, *NEW))
    assert findings(venv, HASWELL) == []
    (finding,) = findings(venv, WESTMERE)
    assert finding.rule == "env-cpu-features"
    assert "solver 1.0 was compiled for AVX" in finding.summary
    assert any("in scale" in one.seen for one in finding.evidence)
    # The package is built again, here for this processor.
    venv.add_pip()
    old = library(tmp_path / "old.so", CODE, "-O3")
    wheel(tmp_path / "wheels", "solver", "1.0", {"solver/__init__.py": "", "solver/core.so": old}, tags=NATIVE)
    (built,) = (tmp_path / "wheels").iterdir()
    sources = tmp_path / "sources"
    sources.mkdir()
    source(sources, built)
    venv.repair(finding, sources)
    assert findings(venv, WESTMERE) == []


@pytest.mark.parametrize(
    "libraries",
    [
        {"core": (CODE, "-O3")},
        {"core_avx2": (CODE, *NEW)},
        {"core": (CODE, *NEW), "core_sse2": (CODE, "-O3")},
        {"core": (CODE + ASKS, *NEW)},
        {"core": (CODE, *NEW), "chooser": (ASKS + "char more[200000] = {1};",)},
    ],
    ids=["for any", "by its name", "with another beside it", "it asks", "another one asks"],
)
def test_code_that_something_chooses_is_not_held_against_a_package(
    venv: Venv, tmp_path: Path, libraries: dict[str, tuple[str, ...]]
) -> None:
    brings(venv, tmp_path, **libraries)
    assert findings(venv, WESTMERE) == []


def test_the_code_that_is_read_is_bounded(venv: Venv, tmp_path: Path) -> None:
    """A large library is not read, and what the table knows is told once."""
    brings(venv, tmp_path, core=(CODE + "char more[200000] = {1};", *NEW))
    assert findings(venv, WESTMERE) == []
    shutil.rmtree(venv.site / "solver-1.0.dist-info")
    built = library(tmp_path / "built/small.so", CODE, *NEW)
    tags = tuple(one.replace("linux_", "manylinux_2_17_") for one in NATIVE)
    venv.install("tensorflow", "2.20.0", {"tensorflow/__init__.py": "", "tensorflow/a.so": built}, tags=tags)
    (finding,) = findings(venv, WESTMERE)
    assert "importing it ends with SIGILL" in finding.summary
