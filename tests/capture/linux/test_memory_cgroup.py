"""The control group of a process, from the texts that kernels and containers show; its counters, from files as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from necropsy.capture.linux.inspect import memory_cgroup
from necropsy.formats import control_groups

V1 = "29 24 0:25 {root} {point} rw,relatime shared:9 - cgroup cgroup rw,memory\n"
V2 = "30 24 0:26 {root} {point} rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
OTHER = "28 24 0:24 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"


def group(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def test_version_2_of_a_service(tmp_path: Path) -> None:
    own = group(
        tmp_path / "job.slice/run", memory__events="low 0\nhigh 0\nmax 3\noom 1\noom_kill 1\n", memory__max="max\n"
    )
    found = control_groups.find("0::/job.slice/run\n", OTHER + V2.format(root="/", point=tmp_path))
    assert found == own
    assert memory_cgroup.counters(own) == {"low": 0, "high": 0, "max": 3, "oom": 1, "oom_kill": 1}
    assert memory_cgroup.limit(own) is None


def test_version_1_beside_version_2(tmp_path: Path) -> None:
    control = "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"
    own = group(
        tmp_path / "m/a", memory__oom_control=control, memory__failcnt="7\n", memory__limit_in_bytes="1048576\n"
    )
    (tmp_path / "unified").mkdir()
    mounts = OTHER + V2.format(root="/", point=tmp_path / "unified") + V1.format(root="/", point=tmp_path / "m")
    found = control_groups.find("4:memory:/a\n3:cpu:/\n0::/\n", mounts)
    assert found == own
    assert memory_cgroup.counters(own) == {"oom_kill": 2, "failcnt": 7}
    assert memory_cgroup.limit(own) == 1 << 20


@pytest.mark.parametrize(
    ("groups", "root"),
    [("0::/docker/abc", "/docker/abc"), ("0::/", "/"), ("0::/../../user.slice", "/"), ("0::/docker/abc", "/")],
    ids=["its own part is mounted", "namespace", "outside of its namespace", "path of the host"],
)
def test_in_a_container_the_mount_is_the_group(tmp_path: Path, groups: str, root: str) -> None:
    own = group(tmp_path / "fs", memory__events="oom_kill 0\n", memory__max="5\n")
    assert control_groups.find(groups, V2.format(root=root, point=own)) == own


def test_threads_are_counted_by_a_group_of_their_own(tmp_path: Path) -> None:
    own = group(tmp_path / "p/a", pids__current="3\n")
    mounts = OTHER + V1.replace("memory", "pids").format(root="/", point=tmp_path / "p")
    assert control_groups.find("8:pids:/a\n4:memory:/b\n", mounts, "pids") == own
    assert control_groups.find("8:pids:/a\n4:memory:/b\n", mounts) is None


@pytest.mark.parametrize("groups", ["", "nonsense", "3:cpu:/", "0::/x"])
def test_where_nothing_counts_memory_there_is_none(tmp_path: Path, groups: str) -> None:
    assert control_groups.find(groups, V2.format(root="/", point=tmp_path)) is None


def test_what_rose_since_the_last_question(tmp_path: Path) -> None:
    own = group(tmp_path, memory__events="oom 4\noom_kill 4\n")
    since = memory_cgroup.Since(own, memory_cgroup.counters(own))
    assert since.events() == {"oom": 0, "oom_kill": 0}
    group(tmp_path, memory__events="oom 5\noom_kill 5\n")
    assert since.events() == {"oom": 1, "oom_kill": 1}
    assert since.events() == {"oom": 0, "oom_kill": 0}
    (own / "memory.events").unlink()
    assert since.events() is None
    assert since.log() == ()


def test_without_a_limit_version_1_writes_the_largest_number(tmp_path: Path) -> None:
    assert memory_cgroup.limit(group(tmp_path, memory__limit_in_bytes="9223372036854771712\n")) is None


def test_numbers_that_lie_do_no_harm(tmp_path: Path) -> None:
    own = group(tmp_path, memory__events="oom_kill\noom_kill -1\noom x\n\x00\n", memory__max="\n")
    assert memory_cgroup.counters(own) == {}
    assert memory_cgroup.limit(own) is None


def test_processes_of_necropsy_are_not_counted(tmp_path: Path) -> None:
    """The kernel counts them too: it kills the process that reads deaths first."""
    since = memory_cgroup.Since(group(tmp_path, memory__events="max 3\noom_kill 1\n"), {"max": 3, "oom_kill": 1})
    group(tmp_path, memory__events="max 5\noom_kill 2\n")
    assert since.events(ours=1) == {"max": 2, "oom_kill": 0}
    group(tmp_path, memory__events="max 5\noom_kill 4\n")
    assert since.events(ours=2) == {"max": 0, "oom_kill": 1}
    assert since.events(ours=3) == {"max": 0, "oom_kill": 0}, "somebody else has killed it"
