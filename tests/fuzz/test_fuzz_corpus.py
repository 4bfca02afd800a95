"""Inputs that fuzzing found worth keeping are read again: none may fail, and each seed still says what it says."""

from __future__ import annotations

from pathlib import Path

import fuzz_minidump
import pytest
import seeds

from necropsy.capture import open_minidump
from necropsy.formats.minidump import parse

CORPUS = sorted((Path(__file__).parent / "corpus").iterdir())


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    seeds.write_images(folder)
    return folder


def test_there_is_a_corpus_and_it_is_small() -> None:
    assert len(CORPUS) > 20
    assert sum(path.stat().st_size for path in CORPUS) < 200_000


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_what_fuzzing_found_is_read(path: Path, images: Path) -> None:
    fuzz_minidump.read(path.read_bytes(), (images,))


@pytest.mark.parametrize("name", seeds.dumps())
def test_each_seed_is_read_whole(name: str, images: Path) -> None:
    crash = open_minidump.crash_of(parse(seeds.dumps()[name]), images=(images,))
    assert crash.gap("dump") is None
    assert crash.exit is not None and crash.exit.kind in {"exited", "signaled"}


def test_the_fuzz_target_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("a defect")

    monkeypatch.setattr("necropsy.capture.windows.stack_bounds.of_thread", broken)
    with pytest.raises(AssertionError, match="a defect"):
        fuzz_minidump.read(seeds.dumps()["violation"])
