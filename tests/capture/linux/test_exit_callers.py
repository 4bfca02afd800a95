"""Who called exit(3), and what it had said: read at the process's end, without its stderr."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from supervised import record_of, words

from necropsy.capture.linux.supervise import ptrace
from necropsy.capture.linux.unwind.exit_callers import said_by
from necropsy.capture.run_options import Said

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the supervisor is for Linux"),
    pytest.mark.skipif(not shutil.which("gcc"), reason="the program needs gcc"),
    pytest.mark.skipif(not shutil.which("setpriv"), reason="setpriv gives up rights"),
]
PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline)) static void load_weights(const char *path)
{
    FILE *file = fopen(path, "r");
    if (!file) {
        fprintf(stderr, "cannot open the weights in %s\n", path);
        exit(3);
    }
}

int main(int count, char **words)
{
    if (count > 2)
        return 3;
    load_weights(words[1]);
    return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exits")
    (folder / "loads.c").write_text(PROGRAM)
    subprocess.run(["gcc", "-O1", "-o", folder / "loads", folder / "loads.c"], check=True)
    return folder / "loads"


def at_its_end(*command: str | Path) -> Said | None:
    """What is found while it is stopped in exit_group(2)."""
    shell = ["sh", "-c", 'read line; exec "$@"', "sh", *map(str, command)]
    process = subprocess.Popen(shell, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    ptrace.seize(process.pid, ptrace.OPTION_EXIT)
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()
    while True:
        _, status = os.waitpid(process.pid, ptrace.WALL)
        assert os.WIFSTOPPED(status)
        if status >> 8 == signal.SIGTRAP | ptrace.EVENT_EXIT << 8:
            break
        ptrace.cont(process.pid, 0 if status >> 16 else os.WSTOPSIG(status))
    found = said_by(process.pid, process.pid, time.monotonic() + 60)
    ptrace.cont(process.pid)
    process.communicate()
    return found


def test_the_caller_of_exit_and_its_formatted_words_are_found(program: Path) -> None:
    found = at_its_end(program, "/not/there.bin")
    assert found is not None
    assert found.text == "cannot open the weights in /not/there.bin"
    assert "load_weights" in [frame.function for frame in found.callers]


def test_a_main_that_returned_and_a_shell_name_nobody(program: Path) -> None:
    assert at_its_end(program, "one", "two") is None
    assert at_its_end("/bin/sh", "-c", "exit 3") is None


@pytest.mark.parametrize("fault", ["late_to_look", "late_to_look_in_python"])
def test_a_shell_that_passes_on_the_code_of_a_program_has_its_words_but_not_its_caller(
    fault: str, program: Path, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    command = ["sh", "-c", f"{program} /not/there.bin; exit $?"]
    before = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"]
    subprocess.run([*before, *words(command, record=record, fault=fault)], check=False, capture_output=True)
    seen = record_of(record)
    (shell, child) = seen.processes
    told = {pid: crash.last_words.text for pid, crash in seen.ends.items() if crash.last_words is not None}
    assert told == dict.fromkeys((shell.pid, child.pid), "cannot open the weights in /not/there.bin")
    assert seen.ends[child.pid].threads is not None
    assert seen.ends[shell.pid].threads is None
