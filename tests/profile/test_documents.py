"""What the rules are asked of a profiled run: a limit that several processes share is judged once."""

from __future__ import annotations

from necropsy.model import Exit, Limit, Process, ResourceUse, RunRecord
from necropsy.profile.documents import of_profile

MIB = 1 << 20


def process(pid: int, *limits: Limit, memory: tuple[ResourceUse, ...] | None = None) -> Process:
    role = "command" if pid == 1 else "child"
    return Process(pid=pid, role=role, exit=Exit(kind="exited", code=0), limits=limits, memory=memory)


def group(peak: int, where: str = "/group/memory.max") -> Limit:
    return Limit(name="memory.max", limit=1000 * MIB, peak=peak * MIB, where=where)


def test_a_shared_limit_is_judged_once_where_the_most_was_seen() -> None:
    files = Limit(name="RLIMIT_NOFILE", limit=100, peak=95)
    processes = (
        process(1, group(900), files),
        process(2, group(940), files),
        process(3, group(930, "/other/memory.max")),
    )
    document = of_profile(RunRecord(processes=processes), ("a",), ())
    found = [(one.rule, one.evidence[0].seen) for one in document.findings]
    assert sorted(found) == [
        ("near-fd-limit", "95 of 100"),
        ("near-fd-limit", "95 of 100"),
        ("near-memory-limit", "930 MiB of 1,000 MiB"),
        ("near-memory-limit", "940 MiB of 1,000 MiB"),
    ]
    assert [one.limits for one in document.processes] == [one.limits for one in processes], "all are told"


def test_growth_is_held_against_a_shared_limit_in_each_process() -> None:
    memory = tuple(ResourceUse(at=float(at), rss=(100 + at) * MIB) for at in range(100))
    processes = (process(1, group(600), memory=memory), process(2, group(601)))
    (found,) = of_profile(RunRecord(processes=processes), ("a",), ()).findings
    assert found.rule == "memory-growth"
    assert "after 6.7 min more" in found.summary
