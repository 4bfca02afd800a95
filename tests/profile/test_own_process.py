"""`with necropsy.profile()`: what a block of one's own process used."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import necropsy
from necropsy.errors import OptionError
from necropsy.model import Document

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux")
DEEP = """
import json, sys, threading
import necropsy
sys.setrecursionlimit(10**6)
deep, asked, done = threading.Event(), threading.Event(), threading.Event()
def work():
    asked.wait()
    json.loads("[" * 10_000 + "]" * 10_000)
    done.set()
    deep.wait()
threading.stack_size(2 << 20)
thread = threading.Thread(target=work)
thread.start()
with necropsy.profile() as first:
    asked.set(); done.wait()
    keep = bytearray(64 << 20)
    json.loads("[" * 55_000 + "]" * 55_000)
del keep
with necropsy.profile() as second:
    json.loads("[" * 20_000 + "]" * 20_000)
deep.set()
sys.stdout.buffer.write(necropsy.dumps(first.document) + b"\\0" + necropsy.dumps(second.document))
"""


@pytest.fixture(scope="module")
def documents() -> tuple[Document, Document]:
    done = subprocess.run(
        ["sh", "-c", 'ulimit -S -s 8192; exec "$0" -c "$1"', sys.executable, DEEP],
        capture_output=True,
        timeout=60,
        check=True,
    )
    first, second = done.stdout.split(b"\0")
    return necropsy.loads(first), necropsy.loads(second)


def test_the_stacks_of_the_block_are_those_of_its_living_threads(documents: tuple[Document, Document]) -> None:
    process = documents[0].processes[0]
    main, other = process.stacks or ()
    assert (main.name, main.size, main.set_by) == ("main", 8 << 20, "ulimit -s")
    assert main.peak is not None
    assert 55_000 * 100 < main.peak < 8 << 20
    assert (other.size, other.set_by) == (2 << 20, "threading.stack_size")
    assert (main.python_name, other.python_name) == (None, "Thread-1 (work)")
    assert other.peak is not None
    assert 10_000 * 100 < other.peak < 2 << 20
    assert [one.rule for one in documents[0].findings] == ["near-stack-overflow"]
    assert process.peak_rss is not None
    before, after = process.memory or ()
    assert (after.rss or 0) - (before.rss or 0) > 64 << 20


def test_what_was_used_before_the_block_is_not_its_own(documents: tuple[Document, Document]) -> None:
    first, second = (one.processes[0] for one in documents)
    (main,) = [one for one in second.stacks or () if one.name == "main"]
    assert main.peak is None
    assert main.inherited == (first.stacks or ())[0].peak
    assert documents[1].findings == ()
    assert second.peak_rss is None, "the kernel's peak did not move"
    assert "no more than" in necropsy.render(documents[1])


def test_inside_the_block_nothing_is_known_and_an_exception_passes() -> None:
    profiled = necropsy.profile()

    def divide() -> None:
        with profiled:
            with pytest.raises(RuntimeError, match="once it has ended"):
                _ = profiled.stacks
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        divide()
    assert profiled.document.kind == "profile"
    assert profiled.process.pid == os.getpid()
    assert len(profiled.memory) == 2


def test_arguments_need_a_command() -> None:
    with pytest.raises(OptionError, match="takes no arguments"):
        necropsy.profile(timeout=5)  # type: ignore[call-overload] # the wrong call is what is tested
