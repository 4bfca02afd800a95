"""Kills because memory ran out, by the kernel and by those who kill before it."""

from __future__ import annotations

import pytest

from necropsy.formats.log import scan
from necropsy.formats.readers import kernel_log
from necropsy.formats.readers.oom_killer import READER
from reading import death, only, pieces, verdict

# Printed by Linux 6.18 for a Python in a control group of 96 MiB; the call trace and the statistics are shortened.
REAL = """[  373.633414] python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
[  373.633427] CPU: 0 UID: 0 PID: 2396 Comm: python Not tainted 6.18.44-fc-v657 #1 PREEMPT(none)
[  373.633431] Call Trace:
[  373.633434]  <TASK>
[  373.633453]  dump_stack_lvl+0x57/0x80
[  373.633462]  dump_header+0x43/0x1c0
[  373.633587] memory: usage 98304kB, limit 98304kB, failcnt 53
[  373.633594] memory+swap: usage 98304kB, limit 9007199254740988kB, failcnt 0
[  373.633596] kmem: usage 864kB, limit 9007199254740988kB, failcnt 0
[  373.633598] Memory cgroup stats for /necropsy-test-2366:
[  373.633623] rss 99774464
[  373.633780] hierarchical_memory_limit 100663296
[  373.633851] Tasks state (memory values in pages):
[  373.633852] [  pid  ]   uid  tgid total_vm      rss rss_anon rss_file rss_shmem pgtables_bytes swapents oom_score_adj name
[  373.633854] [   2392]     0  2392     7728     6347     3599     2748         0    98304        0             0 python
[  373.633859] [   2393]     0  2393     7728     4765     3614     1151         0    90112        0             0 necropsy-trace
[  373.633862] [   2394]     0  2394     3597     2758     1216     1542         0    73728        0             0 python
[  373.633864] [   2395]     0  2395     3128     2148      704     1444         0    65536        0             0 python
[  373.633867] [   2396]     0  2396    21569    19460    18016     1444         0   208896        0             0 python
[  373.633925] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/necropsy-test-2366,task_memcg=/necropsy-test-2366,task=python,pid=2396,uid=0
[  373.633943] Memory cgroup out of memory: Killed process 2396 (python) total-vm:86276kB, anon-rss:72064kB, file-rss:5776kB, shmem-rss:0kB, UID:0 pgtables:204kB oom_score_adj:0
[  375.672826] oom_reaper: reaped process 2396 (python), now anon-rss:0kB, file-rss:4kB, shmem-rss:0kB"""
# https://github.com/equinor/ert/issues/7797: `dmesg | grep oom`, a machine without a limit.
GLOBAL = """2024-04-29T14:55:41,678628+02:00 pool invoked oom-killer: gfp_mask=0x6200ca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=0
2024-04-29T14:55:41,678661+02:00  oom_kill_process.cold.33+0xb/0x10
2024-04-29T14:55:41,678996+02:00 [  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name
2024-04-29T14:55:41,679685+02:00 oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/user.slice/user@1.service,task=perl,pid=1440763,uid=21417
2024-04-29T14:55:41,679700+02:00 Out of memory: Killed process 1440763 (perl) total-vm:87033376kB, anon-rss:60356340kB, file-rss:0kB, shmem-rss:0kB, UID:21417 pgtables:169956kB oom_score_adj:0"""
# Linux 3.10 to 4.20 (mm/oom_kill.c of those): the child of the chosen process may be the one that dies.
OLD = """[ 812.1] python invoked oom-killer: gfp_mask=0x201da, order=0, oom_score_adj=0
[ 812.2] Task in /docker/4f1c killed as a result of limit of /docker/4f1c
[ 812.2] memory: usage 4194304kB, limit 4194304kB, failcnt 12
[ 812.3] Memory cgroup out of memory: Kill process 1234 (python) score 912 or sacrifice child
[ 812.3] Killed process 1240 (python) total-vm:9000000kB, anon-rss:4000000kB, file-rss:12kB, shmem-rss:0kB"""
GROUP = """[1.0] python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
[1.1] memory: usage 524288kB, limit 524288kB, failcnt 9
[1.2] Tasks in /job are going to be killed due to memory.oom.group set
[1.3] Memory cgroup out of memory: Killed process 51 (python) total-vm:900kB, anon-rss:400kB, file-rss:1kB
[1.4] Memory cgroup out of memory: Killed process 52 (pt_data_worker) total-vm:900kB, anon-rss:400kB, file-rss:1kB
[1.5] oom_reaper: reaped process 51 (python), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB"""
# earlyoom 1.7 (kill.c), systemd 255 (oomd-manager.c, unit.c).
EARLYOOM = """mem avail:   400 of  7800 MiB ( 5.13%), swap free:    0 of    0 MiB ( 0.00%)
low memory! at or below SIGTERM limits: mem 10.00%, swap 10.00%
sending SIGTERM to process 4711 uid 1000 "python3": oom_score 1034, VmRSS 6121 MiB, cmdline "python3 train.py"
process 4711 exited after 0.6 seconds"""
OOMD = "Nov 20 10:00:00 host systemd-oomd[612]: Killed /user.slice/user-1000.slice/run-r1.scope due to memory pressure for /user.slice/user-1000.slice being 58.32% > 50.00% for > 20s with reclaim activity"
UNIT = "Nov 20 10:00:00 host systemd[1]: train.service: A process of this unit has been killed by the OOM killer."
BROWSER = "[9.1] Out of memory: Killed process 99 (chrome) total-vm:900kB, anon-rss:400kB, file-rss:1kB, shmem-rss:0kB"
SAMPLES = [REAL, GLOBAL, OLD, GROUP, EARLYOOM, OOMD, UNIT, BROWSER]


def test_real_report() -> None:
    (piece,) = pieces(REAL, READER)
    crash = piece.crash
    assert (piece.first, piece.last) == (1, len(REAL.split("\n")))
    assert crash.exit is not None
    assert (crash.pid, crash.exit.signal) == (2396, "SIGKILL")
    assert crash.exit.text is not None
    assert crash.exit.text.startswith("Memory cgroup out of memory")
    assert crash.memory_limit == 98304 * 1024
    assert crash.memory_cgroup == "/necropsy-test-2366"
    assert crash.messages is not None
    assert crash.messages[0].fields["program"] == "python"


def test_message_is_the_one_that_the_log_is_scanned_for() -> None:
    own = only(REAL, READER).messages
    scanned = [one for one in scan(REAL) if one.kind == "kernel-oom"]
    assert own is not None
    assert [(one.kind, one.line, one.where) for one in own] == [(one.kind, one.line, one.where) for one in scanned]
    assert len([one for one in death(REAL, READER).messages or () if one.kind == "kernel-oom"]) == 1


def test_machine_without_a_limit() -> None:
    crash = only(GLOBAL, READER)
    assert (crash.pid, crash.memory_limit, crash.memory_cgroup) == (1440763, None, "/user.slice/user@1.service")


def test_no_limit_is_no_number() -> None:
    text = REAL.replace("memory: usage 98304kB, limit 98304kB", "memory: usage 98304kB, limit 9007199254740988kB")
    assert only(text, READER).memory_limit is None


def test_the_child_was_sacrificed() -> None:
    crash = only(OLD, READER)
    assert (crash.pid, crash.memory_limit) == (1240, 4 << 30)


def test_every_process_of_a_group_is_a_death_of_its_own() -> None:
    first, second = pieces(GROUP, READER)
    assert (first.crash.pid, second.crash.pid) == (51, 52)
    assert (first.last, second.first) == (4, 5)


@pytest.mark.parametrize("kept", [1, 2, 4])
def test_lines_alone(kept: int) -> None:
    lines = [line for line in REAL.split("\n") if "2396" in line and ("oom" in line or "Killed" in line)]
    crash = only("\n".join(lines[-kept:]), READER)
    assert crash.pid == 2396


def test_who_wanted_memory_is_not_who_died() -> None:
    crash = only(REAL.split("\n", maxsplit=1)[0], READER)
    assert (crash.pid, crash.exit) == (None, None)
    assert crash.messages is not None


TWO = "[8.1] Out of memory: Killed process 98 (stress) total-vm:900kB, anon-rss:400kB, file-rss:1kB, shmem-rss:0kB"


def test_of_several_victims_the_python_is_meant() -> None:
    assert death(f"{TWO}\n{REAL}", READER).pid == 2396
    assert death(TWO, READER).pid == 98


def test_of_several_victims_the_one_that_another_text_names_is_meant() -> None:
    named = REAL.replace("2396", "4711") + "\n" + REAL
    audit = 'type=1701 audit(1.2:3): auid=1 uid=1 gid=1 ses=1 pid=2396 comm="python" exe="/usr/bin/python3" sig=9 res=1'
    assert death(named, READER).pid == 4711
    assert death(f"{named}\n{audit}", READER, kernel_log.READER).pid == 2396


def test_a_browser_is_not_meant() -> None:
    crash = only(BROWSER, READER)
    assert (crash.pid, crash.exit) == (None, None)


@pytest.mark.parametrize(
    ("text", "confidence", "said"),
    [
        (REAL, "certain", "96 MiB"),
        (GLOBAL, "certain", "The kernel killed"),
        (OLD, "certain", "4 GiB"),
        (EARLYOOM, "certain", "earlyoom killed"),
        (OOMD, "likely", "systemd-oomd killed"),
        (UNIT, "likely", "memory ran out"),
    ],
)
def test_verdict(text: str, confidence: str, said: str) -> None:
    found = verdict(text, READER)
    assert (found.rule, found.confidence) == ("out-of-memory-killed", confidence)
    assert said in found.summary


@pytest.mark.parametrize(
    "text", ["oom-kill:constraint=", "Killed process", "Killed process 12 by hand", "invoked the killer"]
)
def test_what_is_no_kill(text: str) -> None:
    assert pieces(text, READER) == []
