"""The package: its README has no links that lead nowhere, its parts in C compile, and it holds the manual."""

from __future__ import annotations

import email
import importlib.util
import json
import platform
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import needs
from necropsy.formats.processors import AARCH64

ROOT = Path(__file__).parent.parent
ADDRESS = "https://forge.example/team/necropsy"
_RELATIVE = re.compile(r"\]\((?!https?:|#)")

pytestmark = pytest.mark.skipif(importlib.util.find_spec("hatchling") is None, reason="needs hatchling")


def hatchling(*words: str) -> str:
    command = [sys.executable, "-m", "hatchling", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_the_readme_of_the_package_has_no_relative_links() -> None:
    assert _RELATIVE.search((ROOT / "README.md").read_text(encoding="utf-8"))
    shown = hatchling("metadata", "readme")
    assert shown.startswith("# necropsy\n")
    assert not _RELATIVE.search(shown)
    assert all(address.startswith("https://") for address in json.loads(hatchling("metadata", "urls")).values())


def test_links_become_absolute_where_the_address_is_known() -> None:
    absolute = runpy.run_path(str(ROOT / "hatch_build.py"))["absolute"]
    readme = "See [limits](docs/limits.md#a), [drgn](https://drgn.example), [below](#below).\n\n![A report](docs/r.png)\n\nEnd.\n"
    assert absolute(readme, ADDRESS) == (
        f"See [limits]({ADDRESS}/blob/main/docs/limits.md#a), [drgn](https://drgn.example), [below](#below).\n\n"
        f"![A report]({ADDRESS}/raw/main/docs/r.png)\n\nEnd.\n"
    )
    assert absolute(readme, "") == "See limits, [drgn](https://drgn.example), [below](#below).\n\nEnd.\n"


@pytest.mark.parametrize("part", ["library", "guard", "launcher"])
def test_what_is_written_in_c_compiles(tmp_path: Path, part: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Where it does not, an installation goes on with what stands in for it, and its own tests are skipped."""
    build = runpy.run_path(str(ROOT / "hatch_build.py"))
    shutil.copytree(ROOT / build["FOLDER"] / "csrc", tmp_path / build["FOLDER"] / "csrc")
    built = build[f"compile_{part}"](tmp_path)
    if build["processor"]() is None:  # no compiler, or none for Linux on x86-64 or AArch64
        assert built is None
    else:
        assert built is not None, capsys.readouterr().err
        assert platform.machine() in str(built.relative_to(tmp_path))


@needs.command("aarch64-linux-gnu-gcc")
@pytest.mark.parametrize("part", ["library", "guard", "launcher"])
def test_it_compiles_for_another_processor(tmp_path: Path, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "aarch64-linux-gnu-gcc")
    build = runpy.run_path(str(ROOT / "hatch_build.py"))
    shutil.copytree(ROOT / build["FOLDER"] / "csrc", tmp_path / build["FOLDER"] / "csrc")
    built = build[f"compile_{part}"](tmp_path)
    assert built is not None
    assert "aarch64" in str(built.relative_to(tmp_path))
    assert int.from_bytes(built.read_bytes()[18:20], "little") == AARCH64.machine


@needs.command("aarch64-linux-gnu-gcc")
def test_a_wheel_for_another_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "aarch64-linux-gnu-gcc")
    hatchling("build", "--target", "wheel", "--directory", str(tmp_path))
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-manylinux_2_17_aarch64.whl")
    with zipfile.ZipFile(wheel) as inside:
        names = inside.namelist()
    assert {f"necropsy/capture/linux/_{name}-aarch64.so" for name in ("guard", "supervisor")} < set(names)
    assert not [name for name in names if name.startswith("necropsy/capture/") and "x86_64.so" in name]
    assert any(name.endswith(".data/scripts/necropsy") for name in names)


@needs.command("cc")
@pytest.mark.parametrize(("libc", "tag"), [("musl", "musllinux_1_1"), ("glibc", "manylinux_2_17")])
def test_the_wheel_for_musl_requires_only_what_has_wheels_for_it(
    tmp_path: Path, libc: str, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NECROPSY_LIBC", libc)
    hatchling("build", "--target", "wheel", "--directory", str(tmp_path))
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith(f"-py3-none-{tag}_{platform.machine()}.whl")
    with zipfile.ZipFile(wheel) as inside:
        name = next(one for one in inside.namelist() if one.endswith(".dist-info/METADATA"))
        declared = email.message_from_bytes(inside.read(name)).get_all("Requires-Dist", [])
    required = {Requirement(str(one)).name for one in declared if "extra" not in str(one)}
    assert {"click", "msgspec", "capstone"} <= required
    assert ({"drgn", "py-spy", "ahocorasick_rs"} & required == set()) == (libc == "musl")


def test_nothing_is_compiled_for_other_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "cc"
    other.write_text("#!/bin/sh\necho arm64-apple-darwin23.1.0\n")
    other.chmod(0o755)
    monkeypatch.setenv("CC", str(other))
    build = runpy.run_path(str(ROOT / "hatch_build.py"))
    assert build["processor"]() is None
    assert build["compile_library"](ROOT) is None


def test_the_source_distribution_has_the_manual(tmp_path: Path) -> None:
    hatchling("build", "--target", "sdist", "--directory", str(tmp_path))
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    pages = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert pages | {"mkdocs.yml", "Makefile"} <= inside
    assert not {name for name in inside if name.startswith("build/")}
