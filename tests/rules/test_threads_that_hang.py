"""Of many threads that hang, the report shows those that wait where few do."""

from __future__ import annotations

from necropsy.model import Crash, Exit, Frame, Thread, Wait
from necropsy.rules.crash import hang


def thread(tid: int, line: int, call: str = "futex") -> Thread:
    return Thread(
        tid=tid,
        name="python",
        frames=(Frame(index=0, kind="native", function="wait", module="/lib/libc.so.6"),),
        python=(Frame(index=0, kind="python", function="f", source="/home/u/train.py", line=line),),
        waits=Wait(call=call),
    )


def test_a_pool_does_not_hide_the_two_that_wait_for_each_other() -> None:
    pool = [thread(tid, 3, "clock_nanosleep") for tid in range(11, 71)]
    threads = (thread(10, 90), *pool, thread(71, 6), thread(72, 10))
    found = hang.RULE.match(Crash(pid=10, exit=Exit(kind="timeout"), threads=threads))
    assert found is not None
    told = [one.seen for one in found.evidence]
    assert "train.py:90 " in told[0]
    assert "train.py:6 " in told[1]
    assert "train.py:10 " in told[2]
    assert all("train.py:3 " in seen for seen in told[3:8])
    assert told[8] == "55"
