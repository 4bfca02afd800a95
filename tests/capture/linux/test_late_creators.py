"""A busy machine can keep the creator of a process from running until that process has ended."""

from __future__ import annotations

import subprocess
from pathlib import Path

from harness import build
from supervised import python

FORKS = r"""
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
    char begin;
    if (read(0, &begin, 1) != 1) return 1;
    pid_t child = fork();
    if (!child) _exit(4);
    waitpid(child, 0, 0);
    return 0;
}
"""
CREATOR_IS_LATE = """
import os, signal, subprocess, sys
from necropsy.capture.linux.supervise import ptrace
from necropsy.capture.linux.supervise.event_loop import Kind, go_on
from necropsy.capture.linux.supervise.python_loop import PythonLoop
from necropsy.capture.linux.supervise.shared_memory import Facts

class Listed:
    def __init__(self):
        self.starts, self.ends = [], []
    def started(self, entry):
        self.starts.append(entry.tid)
    def finished(self, entry):
        self.ends.append((entry.tid, os.waitstatus_to_exitcode(entry.status)))
    def executed(self, entry):
        pass

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGUSR1})
program = subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE)
wait_at_once, late, ended = ptrace.wait_at_once, [], []

def creator_last():
    found = wait_at_once()
    if found == (program.pid, ptrace.EVENT_FORK << 16 | signal.SIGTRAP << 8 | 0x7F):
        late.append(found)
        found = wait_at_once()
    if found is None and late and ended:
        return late.pop()
    if found is not None and found[0] != program.pid and not os.WIFSTOPPED(found[1]):
        ended.append(found[0])
    return found

ptrace.seize(program.pid, ptrace.FOLLOW | ptrace.EXITKILL)
journal = Listed()
loop = PythonLoop(program.pid, front=os.getpid(), facts=Facts(), journal=journal, always=False, failures=False)
ptrace.wait_at_once = creator_last
program.stdin.write(b"x")
program.stdin.flush()
event = None
while event is None or event.kind is not Kind.ENDED:
    event = loop.next(10.0)
    assert event.kind is not Kind.NOTHING, "nothing came for ten seconds"
    go_on(loop, event)
assert ended and not late
assert journal.starts == ended, "the child has started once"
assert journal.ends == [(ended[0], 4), (program.pid, 0)]
"""


def test_a_child_that_ended_before_the_event_of_its_creator_is_listed_once(tmp_path: Path) -> None:
    words = [*python(CREATOR_IS_LATE), str(build(tmp_path, FORKS, "-O1"))]
    done = subprocess.run(words, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
