"""Signals that a program ignores interrupt none of its calls, under necropsy as without it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from harness import build
from supervised import run, run_and_record, until

import crashers.build

IGNORED = {"WINCH", "CHLD", "CONT", "ignored", "flood"}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    source = (crashers.build.HERE / "ignored_signals.c").read_text()
    return str(build(tmp_path_factory.mktemp("signals"), source, "-O1"))


@pytest.fixture(scope="module")
def ours(program: str) -> subprocess.CompletedProcess[bytes]:
    """The program under necropsy."""
    return run([program], log="off")


def results(said: bytes) -> dict[tuple[str, str], str]:
    """By call and by what happened during it: what the call returned."""
    lines = (line.split(maxsplit=2) for line in said.decode().splitlines())
    return {(call, way): rest for call, way, rest in lines}


def test_calls_return_what_they_return_without(program: str, ours: subprocess.CompletedProcess[bytes]) -> None:
    plain = subprocess.run([program], check=True, capture_output=True, timeout=60).stdout
    assert ours.returncode == 0
    assert len(results(plain)) == 88
    assert results(ours.stdout) == results(plain)


def test_only_what_is_handled_or_stops_interrupts(ours: subprocess.CompletedProcess[bytes]) -> None:
    found = results(ours.stdout)
    interrupted = {(call, way) for (call, way), result in found.items() if "EINTR" in result}
    assert {way for _, way in interrupted} == {"handled", "both", "stopped"}
    assert ("epoll_wait", "handled") in interrupted
    # A timeout has an end under a stream of signals too: each of these calls has returned.
    assert {call for call, way in found if way == "flood"} == {call for call, _ in found}
    assert not IGNORED & {way for _, way in interrupted}


LOOP = """
import select, signal, subprocess, sys, time
poll = select.epoll()
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.1)"])
try:
    print(poll.poll(0.5))
finally:
    print(child.wait())
"""


def test_children_that_end_do_not_disturb_an_event_loop(tmp_path: Path) -> None:
    # Python makes interrupted calls again itself; what it says is the same, and the run is healthy.
    done = run(["python3", "-c", LOOP], log="off")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"[]\n0\n", b"")


OUTLIVES = """
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>
int main(int count, char **words) {
    struct epoll_event event = {.events = EPOLLIN};
    if (fork() == 0) {
        setsid();
        int poll = epoll_create1(0);
        epoll_ctl(poll, EPOLL_CTL_ADD, 0, &event);
        close(open("stands", O_CREAT | O_WRONLY, 0600));
        int found = epoll_wait(poll, &event, 1, 600000);
        dprintf(open(words[1], O_CREAT | O_WRONLY, 0600), "%d %d\\n", found, found < 0 ? errno : 0);
        _exit(0);
    }
    for (;;) pause();
}
"""


def test_a_child_that_is_read_because_the_commands_time_is_up_waits_on(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = [str(build(tmp_path, OUTLIVES)), str(out)]
    reading, writing = os.pipe()
    popen = {"capture_output": False, "stdin": reading, "cwd": tmp_path}
    try:
        done, record = run_and_record(
            words, tmp_path, log="off", timeout_s=1000, fault="time_is_up_at_a_mark", popen=popen
        )
        assert done.returncode == 124
        assert len(record.crashes) == 2  # both were stopped and read
        os.write(writing, b"x")
        until(lambda: out.exists() and out.read_bytes(), "the child's word")
    finally:
        os.close(reading)
        os.close(writing)
    assert out.read_bytes() == b"1 0\n"
