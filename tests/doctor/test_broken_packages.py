"""Environments whose packages are broken in one way each: found, with a fix that works when it is pasted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from doctor_building import CP, NATIVE, PURE, Venv, after, library, needs_compiler, wheel

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="virtual environments are laid out as on Linux")


@pytest.fixture
def venv(tmp_path: Path) -> Venv:
    return Venv.make(tmp_path / "an environment")


@pytest.fixture
def with_pip(venv: Venv) -> Venv:
    venv.add_pip()
    return venv


def test_a_requirement_that_is_not_met(with_pip: Venv, tmp_path: Path) -> None:
    with_pip.install(
        "reader", "3.5.0", requires=["h5lib>=3.11", "h5lib!=3.12.0", "absent>=1", "other; python_version<'3'"]
    )
    with_pip.install("second", "1.0", requires=["h5lib>=3.2,<4"])
    with_pip.install("h5lib", "3.9.0")
    wheel(tmp_path / "wheels", "h5lib", "3.11.0")
    wheel(tmp_path / "wheels", "h5lib", "4.0")
    finding = with_pip.finding("env-package-conflict", "reader", "second")
    assert finding.severity == "warning"
    assert finding.fixes[0].command == f"'{with_pip.python}' -m pip install 'h5lib<4,>=3.11,!=3.12.0'"
    assert "Requires-Dist: h5lib>=3.11" in {one.seen for one in finding.evidence}
    with_pip.repair(finding, tmp_path / "wheels")
    assert with_pip.examine("reader", "second").findings == ()


def test_a_version_that_is_asked_for_is_a_requirement(venv: Venv) -> None:
    venv.install("reader", "3.5.0")
    assert "the command line asks for reader>=4" in venv.finding("env-package-conflict", "reader>=4").summary
    assert venv.examine("reader>=3").findings == ()


def test_requirements_of_others_are_not_ours(venv: Venv) -> None:
    venv.install("reader", "3.5.0")
    venv.install("stranger", "1.0", requires=["reader>=99"])
    assert venv.examine("reader").findings == ()


def test_an_extra_counts_where_it_is_asked_for(venv: Venv) -> None:
    venv.install("reader", "3.5.0", requires=["h5lib>=3; extra == 'files'"])
    venv.install("h5lib", "2.0")
    assert venv.examine("reader").findings == ()
    venv.finding("env-package-conflict", "reader[files]")


def test_bounds_that_exclude_each_other_have_pip_choose(venv: Venv) -> None:
    venv.install("first", "1.0", requires=["h5lib<3"])
    venv.install("second", "1.0", requires=["h5lib>=3"])
    venv.install("h5lib", "3.0")
    command = venv.finding("env-package-conflict", "first", "second").fixes[0].command
    assert command is not None
    assert command.endswith("install --upgrade first h5lib")


@needs_compiler
def test_numpy_of_the_other_generation(with_pip: Venv, tmp_path: Path) -> None:
    built = library(tmp_path / "a.so")
    with_pip.install("native", "1.0", {"native/_c.so": built}, requires=["numpy<2.0.0,>=1.23.5"], tags=NATIVE)
    with_pip.install("pure", "1.0", requires=["numpy<3"])
    with_pip.install("numpy", "2.1.0")
    wheel(tmp_path / "wheels", "numpy", "1.26.4")
    finding = with_pip.finding("env-numpy-abi-mismatch", "native", "pure")
    assert finding.fixes[0].command == f"'{with_pip.python}' -m pip install 'numpy<2.0.0,>=1.23.5'"
    with_pip.repair(finding, tmp_path / "wheels")
    assert with_pip.examine("native", "pure").findings == ()


@needs_compiler
def test_code_that_was_compiled_for_numpy_1_whatever_is_required(venv: Venv, tmp_path: Path) -> None:
    code = 'const char *f(void) {{ return "{}"; }}'
    one = library(tmp_path / "one.so", code.format("numpy.core._multiarray_umath"))
    both = library(tmp_path / "both.so", code.format('numpy.core._multiarray_umath" "\\0numpy._core._multiarray_umath'))
    venv.install("old", "1.0", {"old/__init__.py": "", "old/_c.so": one}, requires=["numpy>=1.20"], tags=NATIVE)
    venv.install("new", "1.0", {"new/__init__.py": "", "new/_c.so": both}, requires=["numpy>=1.20"], tags=NATIVE)
    venv.install("numpy", "2.1.0")
    finding = venv.finding("env-numpy-abi-mismatch", "old", "new")
    assert "old 1.0 was built for another NumPy ABI (<2)" in finding.summary
    assert venv.examine("new").findings == ()


@pytest.mark.parametrize(
    ("head", "runtime", "wanted"),
    [
        ("# Protobuf Python Version: 5.28.3\n", "5.27.0", ">=5.28.3"),
        ("DESCRIPTOR = x\n_A = _descriptor.FieldDescriptor(\n", "4.25.0", "<4"),
        ("# Protobuf Python Version: 5.28.3\n", "6.31.1", None),
        ("DESCRIPTOR = x\n_A = _descriptor.FieldDescriptor(\n", "3.20.3", None),
    ],
)
def test_generated_code_of_protobuf(
    with_pip: Venv, head: str, runtime: str, wanted: str | None, tmp_path: Path
) -> None:
    venv = with_pip
    venv.install("messages", "1.0", {"messages/__init__.py": "", "messages/a_pb2.py": head}, requires=["protobuf"])
    venv.install("protobuf", runtime, {"google/protobuf/__init__.py": ""})
    if wanted is None:
        assert venv.examine("messages").findings == ()
    else:
        finding = venv.finding("env-protobuf-mismatch", "messages")
        command = finding.fixes[0].command
        assert command is not None
        assert command.endswith(f"install 'protobuf{wanted}'")
        for version in ("3.20.3", "5.29.0"):
            wheel(tmp_path / "wheels", "protobuf", version, {"google/protobuf/__init__.py": ""})
        venv.repair(finding, tmp_path / "wheels")
        assert venv.examine("messages").findings == ()


def test_packages_of_another_python(with_pip: Venv, tmp_path: Path) -> None:
    with_pip.install("native", "1.0", {"native/__init__.py": ""}, tags=["cp27-cp27mu-linux_x86_64"])
    with_pip.install("stable", "1.0", tags=["cp36-abi3-manylinux_2_17_x86_64"])
    wheel(tmp_path / "wheels", "native", "1.0")
    finding = with_pip.finding("env-python-abi-mismatch", "native", "stable")
    with_pip.repair(finding, tmp_path / "wheels")
    assert with_pip.examine("native", "stable").findings == ()


@needs_compiler
def test_a_plain_library_serves_each_python_whatever_its_wheel_says(venv: Venv, tmp_path: Path) -> None:
    """As xgboost 1.7's: packed by Python 3.10, loaded by ctypes."""
    built = library(tmp_path / "libboost.so")
    venv.install(
        "boost", "1.7", {"boost/__init__.py": "", "boost/lib/libboost.so": built}, tags=["cp27-cp27mu-linux_x86_64"]
    )
    assert venv.examine("boost").findings == ()
    built = library(tmp_path / "_c.so")
    venv.install("boost", "1.7", {"boost/__init__.py": "", "boost/_c.so": built}, tags=["cp27-cp27mu-linux_x86_64"])
    venv.finding("env-python-abi-mismatch", "boost")


def test_another_pythons_packages_in_pythonpath_are_one_cause(venv: Venv, tmp_path: Path) -> None:
    for name in ("one", "two"):
        venv.install(name, "2.0")
        venv.install(name, "1.0", tags=["cp27-cp27mu-linux_x86_64"], to=tmp_path / "other")
    variables = {"PYTHONPATH": str(tmp_path / "other")}
    finding = venv.finding("env-python-abi-mismatch", "one", "two", variables=variables)
    assert finding.fixes[0].command == "unset PYTHONPATH"
    assert venv.examine("one", "two", variables=after(finding, variables)).findings == ()


@needs_compiler
def test_packages_of_another_platform(with_pip: Venv, tmp_path: Path) -> None:
    venv = with_pip
    venv.install("tagged", "1.0", tags=[f"{CP}-{CP}-win_amd64"])
    finding = venv.finding("env-wrong-platform", "tagged")
    assert "win_amd64" in finding.summary
    wheel(tmp_path / "wheels", "tagged", "1.0")
    venv.repair(finding, tmp_path / "wheels")
    assert venv.examine("tagged").findings == ()
    built = library(tmp_path / "a.so")
    data = bytearray(built.read_bytes())
    data[18:20] = (183).to_bytes(2, "little")
    built.write_bytes(data)
    venv.install("copied", "1.0", {"copied/_c.so": built}, tags=NATIVE)
    assert "linux aarch64" in venv.finding("env-wrong-platform", "copied").summary


def test_a_package_that_does_not_support_this_python(with_pip: Venv, tmp_path: Path) -> None:
    with_pip.install("young", "1.0", python=">=99")
    wheel(tmp_path / "wheels", "young", "1.1")
    with_pip.repair(with_pip.finding("env-python-unsupported", "young"), tmp_path / "wheels")
    assert with_pip.examine("young").findings == ()


def test_two_distributions_that_own_the_same_files(with_pip: Venv, tmp_path: Path) -> None:
    shared = {"cv/__init__.py": "", "cv/code.py": "x = 1\n", "cv/tests/a.py": ""}
    with_pip.install("cv", "1.0", shared)
    with_pip.install("cv_headless", "1.1", shared)
    with_pip.install("space", "1.0", {"cv/__init__.py": "", "cv/tests/a.py": "", "cv/space.py": ""})
    wheel(tmp_path / "wheels", "cv", "1.0", shared)
    finding = with_pip.finding("env-duplicate-distribution", "cv", "cv-headless")
    assert "cv/code.py" in finding.summary
    with_pip.repair(finding, tmp_path / "wheels")
    assert with_pip.examine("cv").findings == ()


def test_one_distribution_installed_twice(with_pip: Venv, tmp_path: Path) -> None:
    with_pip.install("cv", "1.0")
    with_pip.install("cv", "1.1")
    wheel(tmp_path / "wheels", "cv", "1.1")
    with_pip.repair(with_pip.finding("env-duplicate-distribution", "cv"), tmp_path / "wheels")
    assert with_pip.examine("cv").findings == ()


def test_a_module_of_the_working_directory(venv: Venv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    venv.install("reader", "1.0")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    for name in ("reader", "json", "os"):  # what the interpreter itself imports is not taken from there
        Path(f"{name}.py").write_text("raise SystemExit('never')\n")
    finding = venv.finding("env-module-shadowed", "reader")
    assert finding.severity == "error"
    venv.repair(finding)
    assert venv.examine("reader").findings == ()


def test_a_module_of_pythonpath(venv: Venv, tmp_path: Path) -> None:
    venv.install("reader", "1.0")
    venv.install("reader", "0.9", to=tmp_path / "old")
    variables = {"PYTHONPATH": str(tmp_path / "old")}
    finding = venv.finding("env-module-shadowed", "reader", variables=variables)
    assert finding.severity == "warning"
    assert str(tmp_path / "old/reader") in finding.summary
    assert venv.examine("reader", variables=after(finding, variables)).findings == ()


@needs_compiler
def test_files_that_are_gone(with_pip: Venv, tmp_path: Path) -> None:
    built = library(tmp_path / "a.so")
    files: dict[str, str | Path] = {
        "reader/__init__.py": "",
        "reader/_c.so": built,
        "reader/tests/a.py": "",
        "reader/x.pyi": "",
    }
    site = with_pip.install("reader", "1.0", files, tags=NATIVE)
    (site / "reader/tests/a.py").unlink()
    (site / "reader/x.pyi").unlink()
    assert with_pip.examine("reader").findings == ()
    (site / "reader/_c.so").unlink()
    wheel(tmp_path / "wheels", "reader", "1.0", files, tags=PURE)
    finding = with_pip.finding("env-file-missing", "reader")
    assert "reader/_c.so" in finding.summary
    with_pip.repair(finding, tmp_path / "wheels")
    assert with_pip.examine("reader").findings == ()


def test_conda_is_told_its_own_name_of_a_package(venv: Venv) -> None:
    """conda's packages of torch, opencv-python and others have other names; no conda is needed to read its records."""
    site = venv.install("torch", "2.9.0", {"torch/__init__.py": "", "torch/core.py": "x = 1\n"})
    venv.install("pip_brought", "2.9.0", {"pip_brought/__init__.py": "", "pip_brought/core.py": "x = 1\n"})
    (site / "torch-2.9.0.dist-info/INSTALLER").write_text("conda\n")
    records = venv.folder / "conda-meta"
    records.mkdir()
    folder = f"lib/{site.parent.name}/site-packages/torch-2.9.0.dist-info"
    record = {"name": "pytorch", "version": "2.9.0", "files": [f"{folder}/METADATA", f"{folder}/RECORD"]}
    (records / "pytorch-2.9.0-cpu_mkl_py311_h1_0.json").write_text(json.dumps(record))
    (records / "libtorch-2.9.0-cpu_mkl_h2_0.json").write_text(json.dumps({"name": "libtorch", "files": ["lib/a.so"]}))
    for name in ("torch", "pip_brought"):
        (site / name / "core.py").unlink()
    found = venv.examine("torch", "pip-brought").findings
    assert [one.rule for one in found] == ["env-file-missing"] * 2
    commands = sorted(one.fixes[0].command or "" for one in found)
    assert commands[0] == f"conda install --prefix '{venv.folder}' --force-reinstall pytorch==2.9.0"
    assert commands[1].startswith("pip ")


@needs_compiler
def test_files_that_are_damaged(with_pip: Venv, tmp_path: Path) -> None:
    built = library(tmp_path / "a.so")
    files: dict[str, str | Path] = {"reader/__init__.py": "x = 1\n", "reader/_c.so": built}
    site = with_pip.install("reader", "1.0", files, tags=NATIVE)
    subprocess.run(["strip", site / "reader/_c.so"], check=True)  # an image that was slimmed: shorter, and whole
    assert with_pip.examine("reader").findings == ()
    (site / "reader/__init__.py").write_text("x = 2\n")
    assert with_pip.examine("reader").findings == ()
    assert with_pip.finding("env-file-damaged", "reader", deep=True).severity == "warning"
    os.truncate(site / "reader/_c.so", 900)
    wheel(tmp_path / "wheels", "reader", "1.0", files)
    finding = with_pip.finding("env-file-damaged", "reader")
    assert finding.severity == "error"
    assert "truncated" in finding.summary
    with_pip.repair(finding, tmp_path / "wheels")
    assert with_pip.examine("reader", deep=True).findings == ()
