"""Nobody has crashed where a child waits for ever: who asked for the lock is named, not the lock's own functions."""

from __future__ import annotations

from necropsy.rules.crash import fork_after_threads
from sketch import parse

ORPHANED = """
    pid 4711
    exit timeout
    forked-from 4
    thread 4711 python3
    frame __lll_lock_wait @ libc.so.6 takes 32
    frame pthread_mutex_lock @ libc.so.6 takes 32
    frame Cache::get(int) @ ext.so in cache.cc:9 takes 32
    waits futex 0x7f0000002000 owner 4700
    python work train.py:9
"""


def test_who_asked_for_a_lock_that_nobody_gives_back_is_named() -> None:
    found = fork_after_threads.RULE.match(parse(ORPHANED).crash)
    assert found is not None
    assert found.culprit is not None
    assert (found.culprit.function, found.culprit.module, found.culprit.line) == ("Cache::get(int)", "ext.so", 9)
    assert found.culprit.python is not None
    assert (found.culprit.python.file, found.culprit.python.line) == ("train.py", 9)
