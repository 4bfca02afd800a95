"""Folders that the next process removes once their own process has ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from necropsy.temporary_folders import TemporaryFolder, remove_abandoned

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no locks of folders on Windows")
PREFIX = "necropsy-tested-"
OWNER = f"""
import os, pathlib, time
from necropsy.temporary_folders import TemporaryFolder
folder = TemporaryFolder({PREFIX!r})
(folder.path / "deep").mkdir()
(folder.path / "deep" / "file").write_text("x")
(folder.path / "deep").chmod(0o500)
print(folder.path, flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_a_folder_goes_with_its_owner(tmp_path: Path) -> None:
    (tmp_path / f"{PREFIX}linked").symlink_to(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdout=subprocess.PIPE, env={**os.environ, "TMPDIR": str(tmp_path)}
    ) as owner:
        assert owner.stdout is not None
        path = Path(owner.stdout.readline().decode().strip())
        own = TemporaryFolder(PREFIX)
        assert path.is_dir(), "its owner runs"
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    remove_abandoned(PREFIX)
    assert not path.exists()
    assert own.path.is_dir(), "the folder of this process"
    own.close()
    assert [one.name for one in tmp_path.iterdir()] == [f"{PREFIX}linked"]


def test_a_name_that_is_no_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / f"{PREFIX}file").write_text("x")
    TemporaryFolder(PREFIX).close()
    assert [one.name for one in tmp_path.iterdir()] == [f"{PREFIX}file"]
