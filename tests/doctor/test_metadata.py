"""The metadata of installed distributions, as many tools have written it over the years."""

from __future__ import annotations

import platform
import sys
from typing import Any

import pytest

from necropsy.doctor import metadata
from necropsy.model import Interpreter
from necropsy.rules import wheel_tags

MARKERS = {"python_version": "3.11", "python_full_version": "3.11.7", "sys_platform": "linux", "extra": ""}


def test_a_licence_of_several_paragraphs_does_not_end_the_fields() -> None:
    text = "Name: x\nLicense: BSD\n        \n        Copyright\n\t\nRequires-Dist: a (>=1)\n\nRequires-Dist: b\n"
    found = metadata.headers(text)
    assert found["license"] == ["BSD  Copyright "]
    assert found["requires-dist"] == ["a (>=1)"]


@pytest.mark.parametrize(
    ("line", "name", "specifier", "applies"),
    [
        ("NumPy (>=1.21.0) ; python_version >= '3.10'", "numpy", ">=1.21.0", True),
        ("ruamel.yaml<1,>=0.17; python_version<'3.8'", "ruamel-yaml", "<1,>=0.17", False),
        ("x[b,a]==1.*; extra == 'more'", "x", "==1.*", False),
        ("y @ https://example.org/y.whl", "y", "", True),
    ],
)
def test_requirements(line: str, name: str, specifier: str, applies: bool) -> None:
    found = metadata.requirement(line, MARKERS)
    assert found is not None
    assert (found.name, found.specifier, found.applies) == (name, specifier, applies)


def test_what_cannot_be_read_is_left_out() -> None:
    assert list(metadata.requirements(["a>>1", "", "b; nonsense == 1", "c"], MARKERS, ()))[-1].name == "c"


def test_requirements_of_an_egg() -> None:
    text = "a>=1\n\n[more]\nb\n\n[more:python_version<'3']\nc\n\n[:sys_platform=='win32']\nd\n"
    lines = list(metadata.egg_requirements(text))
    found = {one.name: one.applies for one in metadata.requirements(lines, MARKERS, ("more",))}
    assert found == {"a": True, "b": True, "c": False, "d": False}


def test_a_record() -> None:
    rows = list(metadata.record('a.py,sha256=abc,3\n"b,c.py",,\nd.py,md5=x,y\n\n'))
    assert [(row.path, row.sha256, row.size) for row in rows] == [
        ("a.py", "abc", 3),
        ("b,c.py", None, None),
        ("d.py", None, None),
    ]


def interpreter(version: str, **more: Any) -> Interpreter:
    values: dict[str, Any] = {"machine": "x86_64", "system": "linux", "libc": "glibc 2.36", **more}
    return Interpreter(executable="python", version=version, **values)


@pytest.mark.parametrize(
    ("tag", "python", "platform_too"),
    [
        ("py3-none-any", True, True),
        ("py2.py3-none-manylinux2014_x86_64", True, True),
        ("cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64", True, True),
        ("cp310-cp310-linux_x86_64", False, True),
        ("cp310-none-linux_x86_64", True, True),
        ("cp38-abi3-linux_x86_64", True, True),
        ("cp312-abi3-linux_x86_64", False, True),
        ("cp311-cp311t-linux_x86_64", False, True),
        ("py2-none-any", False, True),
        ("pp39-pypy39_pp73-linux_x86_64", False, True),
        ("cp311-cp311-manylinux2014_aarch64", True, False),
        ("cp311-cp311-win_amd64", True, False),
        ("cp311-cp311-macosx_11_0_universal2", True, False),
        ("cp311-cp311-musllinux_1_2_x86_64", True, False),
    ],
)
def test_tags(tag: str, python: bool, platform_too: bool) -> None:
    one = interpreter("3.11.7")
    assert wheel_tags.fits_python((tag,), one) is python
    assert wheel_tags.fits_platform((tag,), one) is platform_too


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="the tags are CPython's")
def test_our_own_tags_fit_our_own_interpreter() -> None:
    from packaging.tags import sys_tags

    one = interpreter(
        platform.python_version(),
        machine=platform.machine(),
        system=sys.platform,
        libc="glibc 2.36" if platform.libc_ver()[0] == "glibc" else None,
    )
    for tag in map(str, sys_tags()):
        if tag.startswith("cp"):
            assert wheel_tags.fits_python((tag,), one), tag
        assert wheel_tags.fits_platform((tag,), one), tag
