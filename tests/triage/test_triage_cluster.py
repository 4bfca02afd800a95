"""Files read on a Ray cluster, on this machine. Most of these tests run where Ray is installed."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import sys
from pathlib import Path

import fleet
import pytest

import necropsy
from necropsy.cli import main
from necropsy.errors import NecropsyError, OptionError
from necropsy.gathering import read_part
from necropsy.triage import cluster
from necropsy.triage.parts import Part, UnreadFile
from necropsy.triage.walk import walk


def _why_no_ray() -> str | None:
    if importlib.util.find_spec("ray") is None:
        return "Ray is not installed"
    telemetry = importlib.util.find_spec("opentelemetry")
    if telemetry is not None and importlib.util.find_spec("opentelemetry.metrics") is None:
        return "Ray does not start beside opentelemetry-proto alone, which other tests need"
    return None


needs_ray = pytest.mark.skipif(_why_no_ray() is not None, reason=_why_no_ray() or "")


@needs_ray
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
def test_two_workers_one_of_them_killed_find_the_same(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "in"
    fleet.fill(folder, {"score_rows": 20, "merge_rows": 10, "sort_rows": 1})
    (folder / "bad.json").write_text('{"schema": 1')
    work = [UnreadFile(one) for one in walk([folder]).files]
    marker = str(tmp_path / "killed")
    read = read_part

    def dying(part: Part) -> bytes:
        """The first worker dies in the middle."""
        import os
        import signal

        if not os.path.exists(marker):
            os.close(os.open(marker, os.O_CREAT | os.O_WRONLY))
            os.kill(os.getpid(), signal.SIGKILL)
        return read(part)

    found = {one.path: one for part in cluster.read_parts(work, dying, "local", tmp_path / "rows", 2) for one in part}
    assert Path(marker).exists()
    assert not (tmp_path / "rows").exists()
    assert len(found) == 32
    assert [Path(path).name for path, one in found.items() if one.why is not None] == ["bad.json"]
    assert capfd.readouterr().out == ""
    plain = necropsy.triage(folder, jobs=1).triage
    spread = necropsy.triage(folder, ray="local", jobs=2).triage
    assert spread == plain
    gc.collect()  # Ray leaves its processes to the garbage collector, which would warn in another test


def test_rows_are_written_once(tmp_path: Path) -> None:
    path = fleet.write(tmp_path / "in", "a.json")
    (file,) = walk([path]).files
    part = (UnreadFile(file),)
    name = str(tmp_path / cluster.name_of(part))
    assert cluster._write(read_part, part, name) == name
    before = Path(name).stat()
    path.unlink()
    assert cluster._write(read_part, part, name) == name
    assert Path(name).stat() == before
    assert [one.name for one in tmp_path.iterdir() if one.is_file()] == [Path(name).name]
    path.write_text("{}")
    (other,) = walk([path]).files
    assert cluster.name_of((UnreadFile(other),)) != cluster.name_of(part)


def test_no_ray_is_one_line_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    fleet.write(tmp_path / "in", "a.json")
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["triage", str(tmp_path / "in"), "--ray", "local"]) == 125
    assert capfd.readouterr().err == (
        "necropsy: --ray needs Ray, which is not installed\n  pip install 'necropsy[ray]'\n"
    )


def test_a_cluster_needs_a_store_that_all_machines_have(tmp_path: Path) -> None:
    fleet.write(tmp_path / "in", "a.json")
    with pytest.raises(OptionError, match="goes with --store"):
        necropsy.triage(tmp_path / "in", ray="127.0.0.1:1")


@needs_ray
def test_no_cluster_there_is_one_line(tmp_path: Path) -> None:
    fleet.write(tmp_path / "in", "a.json")
    with pytest.raises(NecropsyError, match="cannot connect to the Ray cluster"):
        necropsy.triage(tmp_path / "in", ray="127.0.0.1:1", store=tmp_path / "store")
