"""The supervisor's C library: which one is used, and what is said where it is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import build
from supervised import C_LOOP

from necropsy.capture.linux.supervise import c_library


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The library is loaded once in a process."""
    monkeypatch.delenv(c_library.CHOICE, raising=False)
    c_library.load.cache_clear()
    yield
    monkeypatch.undo()
    c_library.load.cache_clear()


@C_LOOP
def test_the_library_that_was_installed_is_used() -> None:
    assert c_library.load() is not None
    assert c_library.why_missing() is None


@pytest.mark.parametrize(
    "source",
    ["int old;", "int necropsy_record_size(void) { return 56; }", "int necropsy_record_size(void) { return 64; }"],
)
def test_one_of_another_version_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    """It would be, after an update of the sources beside it, and its records would be misread."""
    monkeypatch.setattr(c_library, "_PATH", build(tmp_path, source, "-shared", "-fPIC", name="other"))
    assert c_library.load() is None
    assert "another version" in (c_library.why_missing() or "")


def test_a_damaged_one_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "damaged.so"
    file.write_bytes(b"\x7fELF and no more")
    monkeypatch.setattr(c_library, "_PATH", file)
    assert c_library.load() is None
    assert "install necropsy again" in (c_library.why_missing() or "")


def test_the_loop_in_python_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(c_library.CHOICE, "python")
    assert c_library.load() is None
    assert "selects the Python loop" in (c_library.why_missing() or "")
