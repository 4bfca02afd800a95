"""`necropsy profile --attach`: what a running process took before and after, and that it goes on unharmed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import build

from necropsy.capture.linux.supervise.attached_profile import AttachedProfile
from necropsy.errors import AttachRefusedError, NoInputError
from necropsy.model import Process, RunRecord, StackUse

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="for Linux")
PAGE = 4096
SOURCE = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>
static __thread char *lowest;
__attribute__((noinline)) static int recursion(int n) {
  volatile char room[300]; room[0] = n;
  if ((char *)room < lowest || !lowest) lowest = (char *)room;
  return n ? recursion(n - 1) + room[0] : 0;
}
static void tell(const char *name) {
  pthread_attr_t own; void *low; size_t size;
  pthread_getattr_np(pthread_self(), &own); pthread_attr_getstack(&own, &low, &size);
  /* Without a buffer, which a fork would copy before it is known to be written. */
  dprintf(1, "%s %ld\n", name, (long)((char *)low + size - lowest));
}
static void *work(void *name) {
  prctl(PR_SET_NAME, name);
  recursion(!strcmp(name, "deep") ? 2000 : 500); tell(name);
  if (strcmp(name, "passing")) for (;;) pause();
  return 0;
}
int main(int argc, char **argv) {
  pthread_t one; int asked;
  if (argc > 1) { recursion(3000); dprintf(1, "again 0\n"); }
  else { pthread_create(&one, 0, work, "passing"); pthread_join(one, 0); pthread_create(&one, 0, work, "deep"); recursion(700); }
  while ((asked = getchar()) != EOF) {
    if (asked == 'n') pthread_create(&one, 0, work, "fresh");
    if (asked == 'm') { memset(malloc(40 << 20), 1, 40 << 20); dprintf(1, "m 0\n"); }
    if (asked == 'f') { if (!fork()) { dprintf(1, "f 0\n"); for (;;) pause(); } }
    if (asked == 'x') execl(argv[0], argv[0], "again", (char *)0);
    if (asked == '?') dprintf(1, "? 0\n");
  }
  return 7;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(
        build(tmp_path_factory.mktemp("attached"), SOURCE, "-O1", "-fno-optimize-sibling-calls", name="attached")
    )


class Running:
    """A program that is told what to do by one letter at a time, and answers."""

    def __init__(self, program: str) -> None:
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.depths: dict[str, int] = {}
        self._answer()
        self._answer()

    def do(self, letter: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(letter)
        self.process.stdin.flush()
        self._answer()

    def _answer(self) -> None:
        assert self.process.stdout is not None
        name, depth = self.process.stdout.readline().split()
        self.depths[name] = int(depth)

    def end(self) -> int:
        """Its exit code, after the end of its input."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(60)


@pytest.fixture
def running(program: str) -> Iterator[Running]:
    one = Running(program)
    try:
        yield one
    finally:
        one.process.kill()
        one.process.wait()
        for file in (one.process.stdin, one.process.stdout):
            if file is not None and not file.closed:
                file.close()


def stacks(process: Process) -> dict[str | None, StackUse]:
    return {one.name: one for one in process.stacks or ()}


def whys(seen: RunRecord) -> str:
    return "\n".join(f"{one.part}: {one.why}" for one in seen.gaps)


def test_how_deep_stacks_were_before_is_known_and_what_comes_is_seen(running: Running) -> None:
    looking = AttachedProfile(running.process.pid, 0.01, sample=True)
    looking.look()
    running.do("n")
    running.do("m")
    looking._next_search = 0
    looking.look()
    seen = looking.end()
    (process,) = seen.processes
    assert process.exit is not None
    assert process.exit.kind == "running"
    own = stacks(process)
    assert own.keys() == {"main", "deep", "fresh"}, "the thread that had ended is not there"
    for name in ("deep", "fresh"):
        assert 0 <= (own[name].peak or 0) - running.depths[name] <= PAGE
        assert own[name].exact
        assert not own[name].ended
    assert own["deep"].peak_at is None, "it was before"
    assert own["deep"].functions is not None
    assert own["deep"].functions[0].function == "recursion"
    assert own["deep"].functions[0].times == pytest.approx(2000, rel=0.02)
    assert (own["main"].peak or 0) > 700 * 300
    assert process.memory is not None
    assert process.peaks is not None
    assert (process.peaks.rss or 0) > 40 << 20
    assert process.peaks.threads == 3
    assert process.heap is not None
    assert (process.heap.peak or 0) > 39 << 20, "of no line, since it runs no Python"
    assert "earlier: memory over time" in whys(seen)
    running.do("?")
    assert running.end() == 7


def test_children_are_seen_those_that_were_there_and_those_that_come(running: Running) -> None:
    running.do("f")
    looking = AttachedProfile(running.process.pid, 0.01)
    looking.look()
    running.do("f")
    looking._next_search = 0
    looking.look()
    seen = looking.end()
    own, *children = seen.processes
    assert [one.parent for one in children] == [own.pid] * 2, whys(seen)
    for child in children:
        (main,) = child.stacks or ()
        assert main.peak is None, "what it has from its parent is no peak of its own"
        assert main.inherited == pytest.approx(stacks(own)["main"].peak, abs=2 * PAGE)
        os.kill(child.pid, signal.SIGKILL)
    assert running.end() == 7


def test_a_program_that_is_executed_meanwhile_is_another_one(running: Running) -> None:
    before = AttachedProfile(running.process.pid, 0.01)
    shallow = before.look()
    assert shallow >= 0
    running.do("x")
    before._next_search = 0
    before.look()
    (process,) = before.end().processes
    assert process.command is not None
    assert process.command[1:] == ("again",)
    (main,) = process.stacks or ()
    assert (main.peak or 0) > 3000 * 300
    assert running.end() == 7


def test_one_that_ends_meanwhile_has_what_was_seen(running: Running) -> None:
    looking = AttachedProfile(running.process.pid, 0.01)
    looking.look()
    assert running.end() == 7
    looking.look()
    assert looking.is_over
    seen = looking.end()
    (process,) = seen.processes
    assert not any(one.exact for one in process.stacks or ())
    assert stacks(process)["deep"].peak is not None
    assert f"process {process.pid} ended while it was looked at" in whys(seen)


def test_who_is_not_there_and_who_may_not_be_read(running: Running) -> None:
    running.end()
    with pytest.raises(NoInputError, match="no process"):
        AttachedProfile(running.process.pid, 0.1)
    with pytest.raises(AttachRefusedError):
        AttachedProfile(os.getpid(), 0.1)


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "necropsy", "profile", *words]


def test_ctrl_c_ends_the_looking_and_not_the_program(running: Running, tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    words = command("--attach", str(running.process.pid), "--json", str(file))
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as looking:
        assert looking.stderr is not None
        first = looking.stderr.readline()
        assert first == f"necropsy: looking at process {running.process.pid} until Ctrl-C, which does not end it\n"
        looking.send_signal(signal.SIGINT)
        said = looking.stderr.read()
    assert looking.returncode == 0
    assert "was still running" in " ".join(said.split())
    (process,) = json.loads(file.read_bytes())["processes"]
    assert "recursion" in json.dumps(process["stacks"])
    assert process["memory"]
    running.do("?")
    assert running.end() == 7


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--attach", "4194303"], 66, "necropsy: there is no process 4194303"),
        (["--attach", "1", "python"], 2, "leave the command and --limits out"),
        (["--attach", "1", "--heap", "memray"], 2, "--heap memray records from the start"),
        (["--attach", "1", "--timeout", "3"], 2, "--for says how long"),
        (["--for", "3s", "python"], 2, "--for is for --attach PID"),
        ([], 2, "which command?"),
    ],
)
def test_what_makes_no_sense_is_one_line(words: list[str], code: int, said: str) -> None:
    done = subprocess.run(command(*words), capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_process_that_another_tracer_has_is_refused(running: Running) -> None:
    code = f"""
import subprocess, sys
from necropsy.capture.linux.supervise.attach import held
with held({running.process.pid}):
    done = subprocess.run({command("--attach", str(running.process.pid))}, capture_output=True, text=True)
print(done.returncode, done.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("125 ")
    assert "is being traced by another process" in done.stdout
    assert "Traceback" not in done.stdout
    assert running.end() == 7


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (FileNotFoundError(2, "No such file"), "this kernel has no page map (CONFIG_PROC_PAGE_MONITOR)"),
        (PermissionError(13, "Permission denied"), "its page map may not be read"),
    ],
    ids=["no-page-map", "no-permission"],
)
def test_without_the_page_map_the_rest_is_measured(
    running: Running, monkeypatch: pytest.MonkeyPatch, error: OSError, why: str
) -> None:
    def refused(*_: object) -> None:
        raise error

    monkeypatch.setattr("necropsy.capture.linux.inspect.resident_pages.PageMap.__init__", refused)
    looking = AttachedProfile(running.process.pid, 0.01)
    looking.look()
    running.do("m")
    seen = looking.end()
    (process,) = seen.processes
    assert not process.stacks
    assert process.peaks is not None
    assert (process.peaks.rss or 0) > 40 << 20
    assert whys(seen).count(why) == 1
    assert running.end() == 7
