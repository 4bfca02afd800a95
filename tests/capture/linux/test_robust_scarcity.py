"""Nothing to spare for us: disk, folders, descriptors, memory, processes. The command's end is its own all the same."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import build
from supervised import LIMIT_S

import needs

NULL = "int main(void) { *(volatile int *)8 = 1; return 0; }"


@pytest.fixture(scope="module")
def null(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("null")
    return str(build(folder, NULL, "-g"))


def mounted(place: Path, options: str) -> None:
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(place)], capture_output=True, check=True)


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A disk of 16 KiB, and nothing left on it."""
    place = tmp_path / "full"
    mounted(place, "size=16k")
    try:
        fill(place / "filler")
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        file.write(bytes(1 << 20))
        with pytest.raises(OSError, match="No space"):
            file.write(b"x")


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "read-only"
    mounted(place, "ro")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def cli(
    *arguments: str, reports: Path, limit: Callable[[], None] | None = None, **environment: str
) -> subprocess.CompletedProcess[bytes]:
    extra: dict[str, Any] = {"preexec_fn": limit} if limit else {}
    return subprocess.run(
        [sys.executable, "-m", "necropsy", "run", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=LIMIT_S,
        env={**os.environ, "NECROPSY_OUTPUT": str(reports), **environment},
        check=False,
        **extra,
    )


def told(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    """The lines in which we speak of our own failures; the end is the command's, and nothing went to its stdout."""
    text = done.stderr.decode()
    assert done.returncode == -signal.SIGSEGV, text
    assert done.stdout == b""
    assert "Traceback" not in text
    return [line for line in text.splitlines() if line.startswith("necropsy: ") and "null" not in line.lower()]


@needs.MOUNT
def test_a_full_disk(null: str, full: Path) -> None:
    """For all three at once: each costs a line, the report is on the screen, and no half a file is left."""
    done = cli("--json", str(full / "a.json"), "--output", str(full / "runs"), null, reports=full / "reports")
    text = done.stderr.decode()
    lines = [line for line in told(done) if "No space left" in line]
    assert len(lines) == 3, text
    assert any("a.json" in line for line in lines)
    assert "  Full report: " in text
    files = [path for path in full.rglob("*") if path.is_file() and path.name != "filler"]
    assert all(path.stat().st_size == 0 for path in files) and len(files) <= 1, files


def test_files_may_not_grow(null: str, tmp_path: Path) -> None:
    """RLIMIT_FSIZE: a write beyond it is refused, or ends the process that does it."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))

    out = tmp_path / "out"
    out.mkdir()
    done = cli("--json", str(out / "a.json"), "--output", str(out), null, reports=out / "reports", limit=limit)
    text = done.stderr.decode()
    assert len([line for line in told(done) if "File too large" in line or "No such file" in line]) >= 2, text
    assert "  Full report: " in text
    assert not (out / "a.json").exists()


def refused(done: subprocess.CompletedProcess[bytes], why: str) -> None:
    """In one line, before the command was started."""
    assert done.returncode == 125
    assert done.stderr.decode().rstrip().endswith(f"{why}; nothing was run")
    assert len(done.stderr.splitlines()) == 1


def test_a_folder_that_may_not_be_written_to(null: str, tmp_path: Path) -> None:
    """A file stands where the folder should be: that keeps root out too."""
    place = tmp_path / "place"
    place.write_text("")
    refused(cli("--json", str(place / "a.json"), null, reports=place / "c"), "Not a directory")
    refused(cli("--output", str(place / "b"), null, reports=place / "c"), "Not a directory")
    done = cli(null, reports=place / "c")
    assert len([line for line in told(done) if "Not a directory" in line]) == 1, done.stderr.decode()
    assert b"  Full report: " in done.stderr


@needs.MOUNT
def test_a_read_only_disk(null: str, read_only: Path) -> None:
    refused(cli("--json", str(read_only / "a.json"), null, reports=read_only / "reports"), "Read-only file system")
    refused(cli("--output", str(read_only), null, reports=read_only / "reports"), "Read-only file system")
    done = cli(null, reports=read_only / "reports")
    assert len([line for line in told(done) if "Read-only file system" in line]) == 1, done.stderr.decode()
    assert b"  Full report: " in done.stderr


@needs.MOUNT
def test_a_read_only_home_and_nowhere_for_temporary_files(null: str, read_only: Path) -> None:
    """A container with a read-only root: the state folder cannot be made either."""
    where = str(read_only)
    done = cli(null, reports=read_only, HOME=where, TMPDIR=where, XDG_STATE_HOME="", NECROPSY_OUTPUT="")
    assert len([line for line in told(done) if "Read-only file system" in line]) == 1, done.stderr.decode()
    assert b"  Full report: " in done.stderr


@pytest.mark.parametrize("most", [64, 24, 16, 10])
def test_few_descriptors(most: int, null: str, tmp_path: Path) -> None:
    """With too few to start it says so and runs nothing; with too few to read, the end is the command's."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    done = cli(null, reports=tmp_path, limit=limit)
    text = done.stderr.decode()
    assert "Traceback" not in text, text
    if done.returncode == 125:
        assert most < 24
        assert text == "necropsy: cannot start: Too many open files\n"
    else:
        assert done.returncode == -signal.SIGSEGV
        assert "SIGSEGV" in text or "necropsy: " in text


@pytest.mark.parametrize("megabytes", [4000, 600, 200, 120])
def test_little_memory(megabytes: int, null: str, tmp_path: Path) -> None:
    """RLIMIT_AS holds for all of our processes, and for the command."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))

    done = cli(null, reports=tmp_path, limit=limit)
    text = done.stderr.decode()
    assert done.returncode == -signal.SIGSEGV, text
    assert "Traceback" not in text, text
    assert "  Full report: " in text or "necropsy: " in text
