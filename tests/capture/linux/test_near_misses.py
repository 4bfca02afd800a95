"""Programs that fail with an input 10 % larger are warned of; those that use less than half of a limit are not.

All programs of a table run as children of one profiled command, so that two runs answer for all of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from harness import build

import control_group

NEAR, OVER, FAR = 94, 104, 40
"""Per cent of a limit: 94 and a tenth of it is 103."""
STACK, MEMORY, FILES = "near-stack-overflow", "near-memory-limit", "near-fd-limit"
IN_PYTHON = {
    "json": ("", "import json; threading.stack_size(1 << 20); run(lambda n: json.loads('[' * n + ']' * n))"),
    "repr": ("ulimit -S -s 1024", "x = []\nfor _ in range(n): x = [x]\nrepr(x)"),
    "call": (
        "",
        "class Again:\n    def __call__(self, n): return n and self(n - 1)\nthreading.stack_size(1 << 19); run(Again())",
    ),
}
"""Recursion through C: what a shell does before, and a program for the depth ``n``."""
BEGINS = """
import os, sys, threading
sys.setrecursionlimit(10**8)
n = int(sys.argv[1])
def run(function):
    one = threading.Thread(target=function, args=(n,)); one.start(); one.join()
"""
TAKES_MEMORY = """
import os, resource, sys
part = int(sys.argv[1]) * resource.getrlimit(resource.RLIMIT_AS)[0] // 100
in_use = int(open("/proc/self/statm").read().split()[0]) * 4096
held = bytearray(part - in_use - 4096)
os._exit(0)
"""
DRIVER = """
import json, subprocess, sys
for name, words in json.loads(sys.argv[1]).items():
    one = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    print(name, one.pid, one.wait(), flush=True)
"""


@dataclass(frozen=True)
class Program:
    """``words`` with the per cent that it takes in place of ``{}``; ``before`` is a line for a shell."""

    name: str
    rule: str
    words: tuple[str, ...]
    before: str = ""
    prefix: tuple[str, ...] = ()
    of: tuple[int, int, int] = (NEAR, OVER, FAR)

    def command(self, share: int) -> list[str]:
        """``share``: one of NEAR, OVER and FAR."""
        words = [word.format(self.of[(NEAR, OVER, FAR).index(share)]) for word in self.words]
        shell = ["sh", "-c", f'{self.before}; exec "$@"', "sh"] if self.before else []
        return [*self.prefix, *shell, *words]


def of_c(binary: str) -> Iterator[Program]:
    """Those that take what they are told to."""
    for kind in ("main-recursion", "main-alloca", "main-vla", "main-large-frames"):
        yield Program(kind, STACK, (binary, kind, "{}"), "ulimit -S -s 1024")
    for kind, size in (
        ("vla", 0),
        ("recursion", 256 << 10),
        ("alloca", 64 << 10),
        ("own-memory", 1 << 20),
        ("pthread-exit", 512 << 10),
        ("callbacks", 512 << 10),
        ("stays", 2 << 20),
    ):
        yield Program(f"thread-{kind}", STACK, (binary, kind, "{}", str(size)))
    yield Program("address-space", MEMORY, (binary, "address-space", "{}"), "ulimit -S -v 400000")
    yield Program("data", MEMORY, (binary, "data", "{}"), "ulimit -S -d 100000")
    yield Program("files", FILES, (binary, "files", "{}"), "ulimit -S -n 200")
    yield Program("pipes", FILES, (binary, "pipes", "{}"), "ulimit -S -n 400")
    if int(Path("/proc/sys/vm/max_map_count").read_text(encoding="ascii")) < 100_000:
        yield Program("mappings", "near-map-limit", (binary, "mappings", "{}"))
    if os.geteuid() == 0:
        yield Program("threads", "near-thread-limit", (binary, "threads", "{}"))
    if can_mount():
        mounts = "mount -t tmpfs -o size=4m,mode=1777 none /dev/shm"
        words = (binary, "shared-memory", "{}")
        yield Program("shared-memory", "near-shm-limit", words, mounts, ("unshare", "--mount"))


def of_groups(binary: str, stack: contextlib.ExitStack) -> Iterator[Program]:
    """Those in control groups, where such can be made."""
    if control_group.can_be_made():
        group = stack.enter_context(control_group.limited(32 << 20))
        enter = tuple(control_group.inside(group))
        yield Program("memory-group", MEMORY, (binary, f"memory:{group}", "{}"), prefix=enter)
    with contextlib.suppress(OSError):
        group = Path("/sys/fs/cgroup/pids") / f"necropsy-test-{uuid.uuid4()}"
        group.mkdir()
        stack.callback(group.rmdir)
        (group / "pids.max").write_text("100")
        enter = tuple(control_group.inside(group))
        yield Program("pids-group", "near-thread-limit", (binary, f"pids:{group}", "{}"), prefix=enter)


def of_python() -> Iterator[Program]:
    """Recursions that die of their depth, and memory for one large object."""
    for name, (before, text) in IN_PYTHON.items() if sys.version_info < (3, 12) else ():
        one = Program(f"python-{name}", STACK, (sys.executable, "-c", f"{BEGINS}{text}\nos._exit(0)", "{}"), before)
        deepest = deepest_of(one)
        yield Program(one.name, STACK, one.words, before, of=(deepest * 94 // 100, deepest * 104 // 100, deepest // 3))
    words = (sys.executable, "-c", TAKES_MEMORY, "{}")
    yield Program("python-address-space", MEMORY, words, "ulimit -S -v 500000")


def deepest_of(program: Program) -> int:
    """The depth with which it still ends well, to a hundredth."""
    low, high = 64, 1 << 17
    while high - low > low // 100:
        middle = (low + high) // 2
        words = Program("", "", program.words, program.before, of=(middle,) * 3).command(NEAR)
        low, high = (middle, high) if ends_well(words) else (low, middle)
    return low


def ends_well(words: list[str]) -> bool:
    return subprocess.run(words, capture_output=True, timeout=60, check=False).returncode == 0


def can_mount() -> bool:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    tried = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/dev/shm"]
    return subprocess.run(tried, capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Program]]:
    source = (Path(__file__).parent / "near_limits.c").read_text(encoding="utf-8")
    folder = tmp_path_factory.mktemp("near")
    binary = str(build(folder, source, "-O1", "-fno-optimize-sibling-calls", "-pthread", name="near_limits"))
    with contextlib.ExitStack() as stack:
        yield [*of_c(binary), *of_groups(binary, stack), *of_python()]


def profiled(folder: Path, programs: list[Program], share: int) -> tuple[dict[str, int], dict[str, Any]]:
    """The processes of the programs by name, all of which ended well, and the document."""
    file = folder / "profile.json"
    commands = json.dumps({one.name: one.command(share) for one in programs})
    words = [sys.executable, "-m", "necropsy", "profile", "--json", str(file), "--"]
    done = subprocess.run(
        [*words, sys.executable, "-c", DRIVER, commands], capture_output=True, text=True, timeout=300, check=False
    )
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [name for name, _, code in rows if code != "0"] == []
    assert len(rows) == len(programs), done.stderr
    return {name: int(pid) for name, pid, _ in rows}, json.loads(file.read_bytes())


def is_about(found: dict[str, Any], program: Program, pid: int) -> bool:
    """The finding is on what the program came near to; limits that processes share name no process."""
    named = f"{found['summary']} {found['evidence'][0]['where']}"
    folder = program.words[1].partition(":")[2]
    is_shared = program.name in {"threads", "shared-memory"} and str(Path("/sys")) not in named
    return found["rule"] == program.rule and (f"process {pid}" in named or (folder and folder in named) or is_shared)


def test_a_program_that_fails_with_a_tenth_more_is_warned_of(programs: list[Program], tmp_path: Path) -> None:
    too_much = [one.name for one in programs if ends_well(one.command(OVER))]
    assert too_much == [], "these do not fail with a tenth more"
    pids, document = profiled(tmp_path, programs, NEAR)
    warnings = [one for one in document["findings"] if one["severity"] == "warning"]
    silent = [one.name for one in programs if not any(is_about(found, one, pids[one.name]) for found in warnings)]
    assert silent == []
    if os.geteuid() == 0 and sys.version_info < (3, 12):
        assert len(programs) >= 20


def test_a_program_that_uses_less_than_half_is_not(programs: list[Program], tmp_path: Path) -> None:
    _, document = profiled(tmp_path, programs, FAR)
    assert [one["summary"] for one in document["findings"]] == []
