"""Every rule on a profiled process keeps its word: its hit, its miss, and its page; and the limits of each."""

from __future__ import annotations

import re

import msgspec
import pytest

from headings import HEADINGS
from necropsy.model import Exit, HeldArray, Limit, Process, ProfileMark, PythonPlace, ResourceUse, StackUse
from necropsy.rule import Finding, Rule
from necropsy.rules import profile_rules

RULES = profile_rules()
MIB = 1 << 20

each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)


def found(text: str) -> list[str]:
    process = msgspec.json.decode(text, type=Process)
    return [rule.name for rule in RULES if rule.match(process) is not None]


@each_rule
def test_hits_its_hit_and_nothing_else(rule: Rule[Process]) -> None:
    assert found(rule.hit) == [rule.name]
    assert rule.name not in found(rule.miss)
    finding = rule.match(msgspec.json.decode(rule.hit, type=Process))
    assert finding is not None
    assert finding.summary.endswith(".")
    assert finding.fixes


@each_rule
def test_says_nothing_of_a_process_that_was_not_measured(rule: Rule[Process]) -> None:
    assert rule.match(Process(pid=1)) is None


@each_rule
def test_page_has_all_headings(rule: Rule[Process]) -> None:
    parts = re.split(r"^(.+)\n-{3,}$", rule.page, flags=re.MULTILINE)
    assert tuple(parts[1::2]) == HEADINGS
    assert "https://" in parts[-1]


def near(size: int, peak: int, end: Exit | None = None, **fields: object) -> Finding | None:
    (rule,) = (one for one in RULES if one.name == "near-stack-overflow")
    stack = msgspec.convert({"tid": 1, "name": "main", "size": size, "peak": peak, **fields}, StackUse)
    return rule.match(Process(pid=1, stacks=(stack,), exit=end))


@pytest.mark.parametrize(
    ("size", "peak", "severity"),
    [
        (8 * MIB, int(8 * MIB * 0.74), None),
        (8 * MIB, int(8 * MIB * 0.76), "note"),
        (8 * MIB, int(8 * MIB * 0.87), "note"),
        (8 * MIB, int(8 * MIB * 0.89), "warning"),
        (8 * MIB, 8 * MIB, "warning"),
        # Little is left of a small stack, of which more than half was used.
        (MIB // 2, int(MIB * 0.27), "note"),
        (MIB // 4, int(MIB * 0.12), None),
        (MIB // 16, MIB // 64, None),
    ],
)
def test_how_close_is_near(size: int, peak: int, severity: str | None) -> None:
    finding = near(size, peak)
    assert (finding.severity if finding is not None else None) == severity


def test_a_stack_that_overflowed_is_not_near_it() -> None:
    assert near(8 * MIB, 8 * MIB, Exit(kind="signaled", signal="SIGSEGV")) is None


@pytest.mark.parametrize(
    ("set_by", "says"),
    [
        ("ulimit -s", "ulimit -s 11264"),
        ("OMP_STACKSIZE", "export OMP_STACKSIZE=11264K"),
        ("threading.stack_size", "threading.stack_size(11534336)"),
        ("attribute", "pthread_attr_setstacksize"),
        ("pthread_attr_setstack", "gives it the memory"),
    ],
)
def test_what_raises_it_follows_what_set_it(set_by: str, says: str) -> None:
    finding = near(8 * MIB, int(7.9 * MIB), set_by=set_by)
    assert finding is not None
    (fix,) = finding.fixes
    assert says in f"{fix.text} {fix.command}"


def test_each_thread_has_a_finding_of_its_own() -> None:
    (rule,) = (one for one in RULES if one.name == "near-stack-overflow")
    stacks = tuple(StackUse(tid=tid, name=f"pool-{tid}", size=MIB, peak=MIB - 4096) for tid in (1, 2, 3))
    finding = rule.match(Process(pid=1, stacks=stacks))
    assert finding is not None
    assert ["pool-1" in finding.summary, *(one.summary[:6] for one in finding.also)] == [True, "pool-2", "pool-3"]


LIMITS = {
    "memory.max": "near-memory-limit",
    "RLIMIT_AS": "near-memory-limit",
    "RLIMIT_DATA": "near-memory-limit",
    "vm.max_map_count": "near-map-limit",
    "RLIMIT_NPROC": "near-thread-limit",
    "pids.max": "near-thread-limit",
    "RLIMIT_NOFILE": "near-fd-limit",
    "/dev/shm": "near-shm-limit",
}


def of_limit(name: str, peak: int, limit: int, hard: int | None = None, end: Exit | None = None) -> Finding | None:
    (rule,) = (one for one in RULES if one.name == LIMITS[name])
    one = Limit(name=name, limit=limit, hard=hard, used=1, peak=peak, where="/group/limit")
    return rule.match(Process(pid=1, limits=(one,), exit=end))


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize(
    ("share", "severity"), [(0.5, None), (0.74, None), (0.76, "note"), (0.89, "warning"), (1.0, "warning")]
)
def test_each_limit_is_near_where_little_is_left(name: str, share: float, severity: str | None) -> None:
    finding = of_limit(name, int(1000 * MIB * share), 1000 * MIB)
    assert (finding.severity if finding is not None else None) == severity
    assert of_limit(name, 1000 * MIB, 1000 * MIB, end=Exit(kind="signaled", signal="SIGKILL")) is None
    assert of_limit(name, 5, 0) is None


@pytest.mark.parametrize(
    ("name", "peak", "limit", "hard", "says"),
    [
        ("RLIMIT_AS", 900 * MIB, 1000 * MIB, None, "ulimit -S -v 1245184"),
        ("RLIMIT_DATA", 900 * MIB, 1000 * MIB, 1000 * MIB, "only root"),
        ("memory.max", 900 * MIB, 1000 * MIB, None, "docker run -m 1216m"),
        ("vm.max_map_count", 65_000, 65_530, None, "sysctl -w vm.max_map_count=131072"),
        ("RLIMIT_NPROC", 500, 512, None, "ulimit -S -u 704"),
        ("pids.max", 500, 512, None, "--pids-limit 704"),
        ("RLIMIT_NOFILE", 1000, 1024, 4096, "ulimit -S -n 2048"),
        ("RLIMIT_NOFILE", 1000, 1024, 1024, "docker run --ulimit"),
        ("/dev/shm", 60 * MIB, 64 * MIB, None, "mount -o remount,size=128m /dev/shm"),
    ],
)
def test_what_raises_a_limit_leaves_a_quarter(name: str, peak: int, limit: int, hard: int | None, says: str) -> None:
    finding = of_limit(name, peak, limit, hard)
    assert finding is not None
    (fix,) = finding.fixes
    assert says in f"{fix.text} {fix.command}"


def grown(*levels: int, seconds: float = 60.0, limit: int | None = None) -> Finding | None:
    """Of a run with these sizes in MiB, at even times."""
    (rule,) = (one for one in RULES if one.name == "memory-growth")
    points = tuple(
        ResourceUse(at=seconds * place / (len(levels) - 1), anonymous=level * MIB) for place, level in enumerate(levels)
    )
    limits = (Limit(name="RLIMIT_DATA", limit=limit * MIB, peak=max(levels) * MIB),) if limit is not None else ()
    return rule.match(Process(pid=1, memory=points, limits=limits))


STEADY = tuple(range(100, 200))


def test_a_steady_rise_is_growth_with_its_rate_and_its_end() -> None:
    finding = grown(*STEADY, seconds=99.0)
    assert finding is not None
    assert finding.severity == "note"
    assert "60 MiB a minute" in finding.summary
    near = grown(*STEADY, seconds=99.0, limit=499)
    assert near is not None
    assert near.severity == "warning"
    assert "after 5 min more" in near.summary
    far = grown(*STEADY, seconds=99.0, limit=10_199)
    assert far is not None
    assert far.severity == "note"
    assert "after 2.8 h more" in far.summary
    # Collections make teeth; at its end the program gives all back.
    assert grown(*(level + 5 * (place % 3) for place, level in enumerate(STEADY)), 10, 10)


@pytest.mark.parametrize(
    ("levels", "seconds"),
    [
        (STEADY, 19.0),  # short
        ((100,) * 100, 60.0),
        (tuple(range(100, 180)) + (180,) * 20, 60.0),  # it has reached its size
        (tuple(int(400 - 300 * 0.97**place) for place in range(100)), 60.0),  # warming up
        ((100,) * 60 + (200,) * 40, 60.0),  # one step
        (tuple(1000 + level // 2 for level in range(100)), 60.0),  # too little of what it has
        (tuple(100 + 50 * (place % 50) // 50 for place in range(100)), 60.0),  # a saw
        ((1, 2, 3, 4, 5), 60.0),  # too few looks
        ((), 60.0),
    ],
)
def test_other_courses_are_no_growth(levels: tuple[int, ...], seconds: float) -> None:
    assert grown(*levels, seconds=seconds) is None


def test_little_memory_left_leads_to_the_line_that_ran_at_the_peak_with_its_input() -> None:
    (rule,) = (one for one in RULES if one.name == "near-memory-limit")
    batch = HeldArray(name="batch", type="numpy.ndarray", dtype="float32", shape=(512, 3), bytes=6144)
    place = PythonPlace(function="load", file="/srv/train.py", line=17)
    peak = ProfileMark(at=2.0, kind="peak", bytes=900 * MIB, python=place, arrays=(batch,))
    near_it = Process(pid=1, limits=(Limit(name="RLIMIT_AS", limit=1000 * MIB, peak=900 * MIB),), marks=(peak,))
    finding = rule.match(near_it)
    assert finding is not None
    assert finding.summary.endswith(
        "train.py:17 ran as the process's memory reached its peak, and held batch: float32 [512, 3], 6 KiB."
    )
    assert finding.evidence[-1].seen == "/srv/train.py:17 in load; batch: float32 [512, 3], 6 KiB"
    alone = rule.match(msgspec.structs.replace(near_it, marks=(msgspec.structs.replace(peak, arrays=()),)))
    assert alone is not None
    assert alone.summary.endswith("train.py:17 ran as the process's memory reached its peak.")
    far = Limit(name="RLIMIT_AS", limit=4000 * MIB, peak=900 * MIB)
    assert rule.match(msgspec.structs.replace(near_it, limits=(far,))) is None
