"""What `necropsy profile` says of memory, descriptors, threads and mappings, beside what a process says of itself."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import control_group
from necropsy.capture.linux.inspect.resource_use import ResourceReader
from necropsy.capture.linux.supervise.resource_profile import ResourceProfile
from necropsy.capture.linux.supervise.traced_processes import Traced
from necropsy.formats import control_groups

MIB = 1 << 20
PROGRAM = """
import json, mmap, os, resource, subprocess, sys, threading, time
held = [bytearray(60 << 20)]
files = [open(os.devnull) for _ in range(100)]
gate = threading.Event()
threads = [threading.Thread(target=gate.wait) for _ in range(7)]
for one in threads: one.start()
small = [mmap.mmap(-1, 4096, prot=mmap.PROT_READ | (mmap.PROT_WRITE if i % 2 else 0)) for i in range(300)]
shared = mmap.mmap(-1, 20 << 20)
for _ in range(20 << 4): shared.write(b"x" * 65536)
time.sleep(1.5)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
mappings = sum("[vsyscall]" not in line for line in open("/proc/self/maps"))
print(json.dumps({name: status[name].split()[0] for name in ("VmHWM", "VmPeak", "VmData", "RssShmem")} | {
    "descriptors": len(os.listdir("/proc/self/fd")) - 1, "mappings": mappings}), flush=True)
gate.set()
child = subprocess.run([sys.executable, "-c", "held = bytearray(30 << 20)"])
os._exit(3)
"""


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, int], dict[str, Any], str]:
    """What the program said of itself, the document, and the text."""
    file = tmp_path_factory.mktemp("resources") / "profile.json"
    words = [sys.executable, "-m", "necropsy", "profile", "--json", str(file), "--", sys.executable, "-c", PROGRAM]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 3, done.stderr
    said = {name: int(value) for name, value in json.loads(done.stdout).items()}
    return said, json.loads(file.read_bytes()), done.stderr


def test_peaks_are_those_of_the_kernel(profiled: tuple[dict[str, int], dict[str, Any], str]) -> None:
    said, document, _ = profiled
    own, child = document["processes"]
    peaks = own["peaks"]
    assert peaks["rss"] == pytest.approx(said["VmHWM"] << 10, rel=0.02)
    assert peaks["address_space"] == pytest.approx(said["VmPeak"] << 10, rel=0.02)
    assert peaks["data"] == pytest.approx(said["VmData"] << 10, rel=0.02)
    assert peaks["shared"] == pytest.approx(said["RssShmem"] << 10, rel=0.02)
    assert peaks["anonymous"] >= 60 * MIB
    assert peaks["threads"] == 8
    # The child's pipe for errors is open for a moment.
    assert said["descriptors"] <= peaks["descriptors"] <= said["descriptors"] + 3
    assert said["mappings"] - 2 <= peaks["mappings"] <= said["mappings"] + 5
    assert child["peaks"]["rss"] < peaks["rss"]
    assert child["memory"], "one that ends soon is looked at when it ends"


def test_the_series_tells_what_was_in_use_when(profiled: tuple[dict[str, int], dict[str, Any], str]) -> None:
    _, document, _ = profiled
    own = document["processes"][0]
    points = own["memory"]
    assert [one["at"] for one in points] == sorted(one["at"] for one in points)
    assert points[-1]["at"] <= own["wall_s"] + 0.1
    assert any(one["threads"] == 8 and one["descriptors"] > 100 for one in points)
    assert all(one["rss"] == one["anonymous"] + one["file"] + one["shared"] for one in points)


def test_limits_have_the_most_that_was_in_use(profiled: tuple[dict[str, int], dict[str, Any], str]) -> None:
    _, document, text = profiled
    own = document["processes"][0]
    limits = {one["name"]: one for one in own["limits"]}
    assert limits["RLIMIT_NOFILE"]["peak"] == own["peaks"]["descriptors"]
    assert limits["vm.max_map_count"]["peak"] == own["peaks"]["mappings"]
    assert limits["vm.max_map_count"]["limit"] == int(Path("/proc/sys/vm/max_map_count").read_text())
    (line,) = (line for line in text.splitlines() if "At most:" in line and "8 threads" in line)
    assert line.startswith("  At most: ")
    assert "\\n" not in text


def test_a_process_that_is_gone_is_an_error_of_the_system() -> None:
    done = subprocess.Popen([sys.executable, "-c", ""])
    reader = ResourceReader(done.pid)
    done.wait()
    with pytest.raises(OSError):
        reader.look(0.0)


def test_own_process_is_read_as_any_other() -> None:
    reader = ResourceReader(os.getpid())
    with open(os.devnull), open(os.devnull):
        more = reader.look(0.0, last=True)
    less = reader.look(1.0, last=True)
    assert more.descriptors is not None
    assert less.descriptors == more.descriptors - 2
    assert reader.peaks().descriptors == more.descriptors
    assert (less.mappings or 0) > 10


# It ends without giving anything back, and is looked at then, however fast it was.
NEAR = """
import mmap, os
files = [open(os.devnull) for _ in range(90)]
held = bytearray(165 << 20)
READ = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
most = int(open("/proc/sys/vm/max_map_count").read())
if most < 100_000:
    small = [mmap.mmap(-1, 4096, READ, mmap.PROT_READ | (mmap.PROT_EXEC if i % 2 else 0)) for i in range(int(most * 0.9))]
size = int(open("/proc/self/statm").read().split()[0]) * 4096
space = mmap.mmap(-1, int(0.9 * (600_000 << 10)) - size, READ, mmap.PROT_READ)
os._exit(0)
"""


def test_what_comes_near_its_limits_is_told_with_what_raises_them(tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    limited = ["sh", "-c", 'ulimit -S -n 100; ulimit -S -d 200000; ulimit -S -v 600000; exec "$@"', "sh"]
    words = [
        sys.executable,
        "-m",
        "necropsy",
        "profile",
        "--json",
        str(file),
        "--",
        *limited,
        sys.executable,
        "-c",
        NEAR,
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(file.read_bytes())
    found = [(one["rule"], one["evidence"][0]["where"]) for one in document["findings"]]
    expected = {
        ("near-fd-limit", "RLIMIT_NOFILE, ulimit -n"),
        ("near-memory-limit", "RLIMIT_AS, ulimit -v"),
        ("near-memory-limit", "RLIMIT_DATA, ulimit -d"),
    }
    if int(Path("/proc/sys/vm/max_map_count").read_text()) < 100_000:
        expected.add(("near-map-limit", "/proc/sys/vm/max_map_count"))
    assert expected <= set(found)
    assert len(found) == len(set(found))
    assert "ulimit -S -n 1024" in done.stderr


@control_group.needed()
def test_a_control_group_that_is_nearly_full(tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    program = "import os; held = bytearray(175 << 20); os._exit(0)"
    with control_group.limited(200 * MIB) as group:
        words = [sys.executable, "-m", "necropsy", "profile", "--json", str(file), "--"]
        words += [*control_group.inside(group), sys.executable, "-c", program]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(file.read_bytes())["findings"]
    assert found["rule"] == "near-memory-limit"
    assert found["evidence"][0]["where"].startswith(str(group))
    assert "of 200 MiB" in found["summary"]


CROWDED = """
import os, resource, threading, time
resource.setrlimit(resource.RLIMIT_NPROC, (12, 4096))
with open("/dev/shm/necropsy-test", "wb") as file: file.write(bytes(7 << 20))
gate = threading.Event()
for _ in range(9): threading.Thread(target=gate.wait, daemon=True).start()
time.sleep(2)
os._exit(0)
"""


def can_unshare() -> bool:
    if os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("setpriv") is None:
        return False
    tried = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/dev/shm"]
    return subprocess.run(tried, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not can_unshare(), reason="needs root, and a mount namespace")
def test_limits_that_are_shared_with_others(tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    user = str(100_000 + os.getpid())  # its threads count, whoever started them
    drop = f"setpriv --reuid {user} --regid {user} --clear-groups"
    script = f'mount -t tmpfs -o size=8m,mode=1777 none /dev/shm; exec {drop} "$@"'
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
    words = [sys.executable, "-m", "necropsy", "profile", "--json", str(file), "--"]
    words += ["unshare", "--mount", "sh", "-c", script, "sh", python, "-c", CROWDED]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(file.read_bytes())
    found = {one["rule"]: one["evidence"][0]["seen"] for one in document["findings"]}
    assert found == {"near-shm-limit": "7 MiB of 8 MiB", "near-thread-limit": "10 of 12"}


BRIEF = """
import mmap, os
def rise(mib):
    with mmap.mmap(-1, mib << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        for at in range(0, mib << 20, 4096): memory[at] = 1
rise(20); rise(150); rise(40)
if os.fork() == 0:
    rise(90)
    print(next(int(line.split()[1]) for line in open("/proc/self/status") if "VmHWM" in line), flush=True)
    os._exit(0)
os.wait()
print(next(int(line.split()[1]) for line in open("/proc/self/status") if "VmHWM" in line), flush=True)
"""
"""Its peaks are over before the first look at it, as a rule."""


def test_a_peak_between_two_looks_is_that_of_the_kernel(tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    words = [sys.executable, "-m", "necropsy", "profile", "--interval", "60", "--json", str(file), "--"]
    with contextlib.ExitStack() as stack:
        group = stack.enter_context(control_group.limited(1 << 30)) if control_group.can_be_made() else None
        words += control_group.inside(group) if group is not None else []
        done = subprocess.run(
            [*words, sys.executable, "-c", BRIEF], capture_output=True, text=True, timeout=120, check=False
        )
        most = control_groups.file_of_most_memory(group) if group is not None else None
        kept = int(most.read_text()) if most is not None else None
    assert done.returncode == 0, done.stderr
    document = json.loads(file.read_bytes())
    peaks = {one["role"]: one["peaks"] for one in document["processes"]}
    child, own = (int(line) << 10 for line in done.stdout.split())
    assert peaks["command"]["rss"] == pytest.approx(own, rel=0.02)
    assert peaks["child"]["rss"] == pytest.approx(child, rel=0.02)
    if kept is not None:
        assert peaks["command"]["group"] == pytest.approx(kept, rel=0.02)


STEADY = """
import os, sys, threading
held = []
print("ready", flush=True)
for line in sys.stdin:
    if line == "files\\n": held += [open(os.devnull) for _ in range(10)]
    if line == "memory\\n": held.append(bytearray(b"x") * (1 << 20))
    if line == "threads\\n":
        gate = threading.Event()
        for _ in range(5): threading.Thread(target=gate.wait, daemon=True).start()
    print("done", flush=True)
"""


def test_what_has_not_changed_is_read_at_each_fourth_look_only() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STEADY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        process = Traced(child.pid, parent=None, role="command", begun=time.monotonic())
        profile = ResourceProfile(0.0)

        def looks() -> int:
            return len(profile.memory(process) or ())

        counts = []
        for _ in range(9):
            profile.look([process])
            counts.append(looks())
        assert counts == [1, 1, 1, 1, 2, 2, 2, 2, 3]
        before = profile.peaks(process)
        assert before is not None
        for word in ("files", "memory", "threads"):
            print(word, file=child.stdin, flush=True)
            child.stdout.readline()
            seen = looks()
            profile.look([process])
            assert looks() == seen + 1, word
        peaks = profile.peaks(process)
        assert peaks is not None
        assert peaks.descriptors == (before.descriptors or 0) + 10
        assert peaks.threads == (before.threads or 0) + 5
        child.stdin.close()
