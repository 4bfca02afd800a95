"""The relay of ``--log pty`` passes every byte on and keeps the last of them: the loop in C and the one in Python alike."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from supervised import LOOPS

RELAY = """
import json, os, select, sys, threading, tty
from necropsy.capture.linux.stderr import pty_relay
from necropsy.capture.linux.supervise.shared_memory import Ring

assert (pty_relay.c_library.load() is None) == (os.environ["NECROPSY_LOOP"] == "python")
is_terminal, blocks, reads, size = json.loads(sys.argv[1])
ring = Ring(64 * 1024)

def pair():
    if not is_terminal:
        return os.pipe()
    ours, theirs = os.openpty()
    tty.setraw(theirs)
    return ours, theirs

ours, theirs = pair()
shown, target = pair()
os.set_blocking(target, blocks)
relay = os.fork()
if not relay:
    for one in (theirs, shown):
        os.close(one)
    os.dup2(target, 2)
    os.close(target)
    os._exit(pty_relay.serve(ours, ring))
os.close(ours)
os.close(target)

got = bytearray()
def read():
    while len(got) < size:
        got.extend(os.read(shown, 1 << 16))
reader = threading.Thread(target=read)
if reads:
    reader.start()
else:
    os.close(shown)

written = bytes(number * 7 % 251 for number in range(size))
place = 0
while place < size:  # pieces of all lengths
    place += os.write(theirs, written[place : place + 1 + place % 9000])
if reads:
    reader.join(30)
os.close(theirs)
status = os.waitstatus_to_exitcode(os.waitpid(relay, 0)[1])
print(json.dumps({
    "status": status, "same": got == written, "kept": ring.tail() == written[-ring.size :], "total": ring.total,
    "busy": ring.busy,
}))
"""

SIZE = 700_000


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def relayed(loop: str, *, is_terminal: bool = False, blocks: bool = True, reads: bool = True, size: int) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", RELAY, json.dumps([is_terminal, blocks, reads, size])],
        env={**os.environ, "NECROPSY_LOOP": loop},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("blocks", [True, False], ids=["blocking", "non-blocking"])
@pytest.mark.parametrize("is_terminal", [False, True], ids=["pipe", "terminal"])
def test_every_byte_is_passed_on_and_the_last_are_kept(loop: str, is_terminal: bool, blocks: bool) -> None:
    found = relayed(loop, is_terminal=is_terminal, blocks=blocks, size=SIZE)
    assert found == {"status": 0, "same": True, "kept": True, "total": SIZE, "busy": False}


def test_it_ends_by_its_own_status_when_nobody_reads_any_more(loop: str) -> None:
    found = relayed(loop, reads=False, size=100)
    assert found["status"] == 3
    assert found["kept"], "what the command wrote counts for the report, though nobody saw it"
    assert found["busy"], "these bytes were not passed on"
