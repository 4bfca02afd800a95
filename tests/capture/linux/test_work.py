"""How many system calls the loop in C makes for what it serves by itself: that is what a supervised program pays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from harness import build

from necropsy.capture.linux.supervise import c_library

pytestmark = pytest.mark.skipif(c_library.load() is None, reason="needs the C library")

COUNT = """
import os, signal, sys
from necropsy.capture.linux.supervise import c_library, ptrace
from necropsy.capture.linux.supervise.event_loop import Kind
from necropsy.capture.linux.supervise.c_loop import open_loop
from necropsy.capture.linux.supervise.shared_memory import Facts
from necropsy.capture.linux.stderr.log_source import Log
class Journal:
    started = executed = finished = lambda self, entry: None
go, seized = os.pipe()
command = os.fork()
if not command:
    os.read(go, 1)
    os.execv(sys.argv[1], sys.argv[1:])
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
ptrace.seize(command, ptrace.FOLLOW)
loop, slow = open_loop(command, front=os.getpid(), facts=Facts(), journal=Journal(), log=Log("off"))
assert slow is None, slow
os.write(seized, b"x")
while (event := loop.next(100.0)).kind is not Kind.OVER:
    assert event.kind in {Kind.EXECUTED, Kind.DRAIN, Kind.ENDED}, event
    if event.kind is Kind.ENDED:
        assert event.value == 0, event
    if event.kind is Kind.EXECUTED:
        loop.ordinary(event.pid)
        loop.resume(event.tid)
print(c_library.load().necropsy_calls())
"""

PROGRAM = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
extern char **environ;
static char *page;
static void pass(int number) { (void)number; }
static void open_page(int number) { (void)number; mprotect(page, 4096, PROT_READ | PROT_WRITE); }
static void *nothing(void *x) { return x; }
int main(int argc, char **argv) {
    char *command[] = {"/bin/true", NULL};
    page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    signal(SIGSEGV, open_page);
    signal(SIGUSR1, pass);
    for (int left = atoi(argv[2]); left > 0; left--) {
        pid_t child = 0;
        pthread_t thread;
        switch (argv[1][0]) {
        case 'f': page[0] = 1; mprotect(page, 4096, PROT_READ); break;
        case 's': raise(SIGUSR1); break;
        case 't': pthread_create(&thread, NULL, nothing, NULL); pthread_join(thread, NULL); break;
        case 'c': if (!(child = fork())) _exit(0); break;
        case 'p': if (posix_spawn(&child, command[0], NULL, NULL, command, environ)) return 1;
        }
        if (child && waitpid(child, NULL, 0) != child)
            return 1;
    }
    return argc != 3;
}
"""


def calls(program: Path, what: str, count: int) -> int:
    words = [sys.executable, "-c", COUNT, str(program), what, str(count)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done
    return int(done.stdout)


@pytest.mark.parametrize(
    ("what", "most"),
    [
        pytest.param("fault", 4.2, id="a fault that a handler takes: one wait, what happened, the registers, go on"),
        pytest.param("signal", 4.1, id="a signal that a handler takes"),
        pytest.param("thread", 17, id="a thread"),
        pytest.param("child", 21, id="a fork"),
        pytest.param("program", 33, id="a child that executes a program"),
    ],
)
def test_system_calls_for_each(what: str, most: float, tmp_path: Path) -> None:
    program = build(tmp_path, PROGRAM, "-pthread")
    # Two threads that stop at the same moment cost a call more or less, as the scheduler has it: the least of three counts.
    few, many = (min(calls(program, what, count) for _ in range(3)) for count in (200, 700))
    assert (many - few) / 500 <= most


def test_a_reader_that_nobody_waits_for_has_compiled_what_it_masks_with() -> None:
    code = """
import itertools, sys
from necropsy.capture.linux.supervise import crash_capture
for load in (crash_capture.loading, crash_capture.warming):
    for _ in load(): pass
from necropsy.secrets.forms import forms
print(*(one.spelled for one in itertools.chain(*forms()) if "pattern" not in vars(one)))
before = set(sys.modules)
from necropsy import redact
assert redact.variables({"API_KEY": "0123456789abcdef", "URL": "https://a:b@c"}) == {"API_KEY": "***", "URL": "https://a:***@c"}
print(*sorted(set(sys.modules) - before))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.stderr) == ("\n\n", "")
