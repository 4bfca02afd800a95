"""Many files are read on several processors, and what has not changed comes from a cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from necropsy.audit import reading
from necropsy.audit.reading import AuditOptions, FileReading, read_all

OPTIONS = AuditOptions(stack=8 << 20, top=3, follow=True, version="1")
DEEP = "import sys\nsys.setrecursionlimit({})\n"


def read(
    paths: list[Path], *, jobs: int | None = 1, cache: Path | None = None, options: AuditOptions = OPTIONS
) -> list[FileReading]:
    return list(read_all([str(one) for one in paths], options, jobs=jobs, cache=cache))


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    made = [tmp_path / f"{number}.py" for number in range(6)]
    for number, one in enumerate(made):
        one.write_text(DEEP.format(10**6 + number))
    made[4].write_text("def (\n")
    return [*made, tmp_path / "missing.py"]


def test_several_processes_give_the_same_in_the_same_order(files: list[Path]) -> None:
    assert read(files, jobs=3) == read(files)


def test_a_file_that_cannot_be_read_costs_only_itself(files: list[Path]) -> None:
    *good, missing = read(files)
    assert missing.is_missing and missing.refused
    assert [one.refused is None for one in good] == [True, True, True, True, False, True]


def test_what_has_not_changed_is_not_read_again(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    first = read(files, cache=cache)
    assert {one.stat().st_mode & 0o777 for one in cache.iterdir()} == {0o600}
    files[1].write_text(DEEP.format(77_777))
    looked: list[str] = []
    fresh = reading._fresh

    def noted(path: str, options: AuditOptions) -> FileReading:
        looked.append(Path(path).name)
        return fresh(path, options)

    monkeypatch.setattr(reading, "_fresh", noted)
    second = read(files, cache=cache)
    assert looked == ["1.py", "4.py", "missing.py"], "what was refused is not kept"
    assert second[1].uses and second[1].uses[0].value == 77_777
    assert [one for at, one in enumerate(second) if at != 1] == [one for at, one in enumerate(first) if at != 1]


def test_other_options_and_damaged_entries_are_read_afresh(files: list[Path], tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    read(files[:1], cache=cache)
    (kept,) = cache.iterdir()
    kept.write_bytes(kept.read_bytes()[:40])
    (again,) = read(files[:1], cache=cache)
    assert again.uses
    (other,) = read(files[:1], cache=cache, options=AuditOptions(stack=1 << 20, top=3, follow=True, version="1"))
    assert other.uses and other.uses[0].stack == 1 << 20
    assert len(list(cache.iterdir())) == 2


def test_the_cache_does_not_grow_without_end(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_MOST_CACHED", 2)
    cache = tmp_path / "cache"
    read(files, cache=cache)
    assert len(list(cache.iterdir())) == 2


def test_a_folder_that_cannot_be_written_costs_nothing(files: list[Path], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert read(files, cache=tmp_path / "file" / "cache") == read(files)
