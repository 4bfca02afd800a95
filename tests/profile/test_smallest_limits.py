"""The smallest limits with which a command works: real runs under real limits."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="for Linux")
MIB = 1 << 20
SOURCE = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
__attribute__((noinline)) static int recursion(int n) {
  volatile char room[1000]; room[0] = n;
  return n ? recursion(n - 1) + room[0] : 0;
}
int main(int argc, char **argv) {
  char *some = malloc(60 << 20);
  if (!some) return 3;
  memset(some, 1, 60 << 20);
  recursion(500);
  if (argc > 1) printf("%d\\n", getpid()); else puts("done");
  return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("limits")
    (folder / "program.c").write_text(SOURCE)
    made = folder / "program"
    subprocess.run(["cc", "-O1", "-fno-optimize-sibling-calls", "-o", made, folder / "program.c"], check=True)
    return str(made)


def limits(folder: Path, *words: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    file = folder / "limits.json"
    command = [sys.executable, "-m", "necropsy", "profile", "--limits", "--json", str(file), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    return done, json.loads(file.read_bytes()) if file.exists() else {}


def under(line: str, program: str) -> int:
    return subprocess.run(["sh", "-c", f"{line} && {program} > /dev/null"], check=False, stderr=-3).returncode


def test_what_is_found_is_enough_and_less_is_not(tmp_path: Path, program: str) -> None:
    done, document = limits(tmp_path, "--", program)
    assert done.returncode == 0, done.stderr
    stack, memory = document["smallest_limits"]
    assert document["kind"] == "profile"
    assert (stack["name"], memory["name"]) == ("RLIMIT_STACK", "RLIMIT_AS")
    assert 500_000 < stack["bytes"] < 700_000
    assert 60 * MIB < memory["bytes"] < 66 * MIB
    for one, flag in ((stack, "s"), (memory, "v")):
        # A page or two more or less: the kernel places stacks at random, and this environment is another one.
        assert under(f"ulimit -{flag} {one['spare'] >> 10}", program) == 0
        assert under(f"ulimit -{flag} {int(one['fails_at'] * 0.9) >> 10}", program) != 0
        assert 0 < one["bytes"] - one["fails_at"] <= max(0.1 * one["bytes"], 2 * MIB)
        assert one["spare"] >= 1.25 * one["bytes"]
    said = " ".join(done.stderr.split())
    assert f"ulimit -s {stack['bytes'] >> 10} " in said
    assert f"ulimit -v {memory['bytes'] >> 10} " in said
    assert f"{stack['runs'] + memory['runs'] + 3} runs. It works if it exits with code 0 and writes the same" in said
    assert "overflow" in stack["fails"].lower()
    assert memory["fails"].endswith("exit code 3") or "memory" in memory["fails"].lower()


def test_a_budget_that_is_spent_is_said_and_so_is_output_that_differs(tmp_path: Path, program: str) -> None:
    done, document = limits(tmp_path, "--budget", "0.001", "--", program, "pid")
    assert done.returncode == 1
    assert document["smallest_limits"] == []
    assert [one["part"] for one in document["gaps"]] == ["smallest stack, address space"]
    said = " ".join(done.stderr.split())
    assert "the budget was spent after 2 runs" in said
    assert "what it writes to stdout differs from run to run" in said


FLAKY = 'n=$(cat count 2>/dev/null || echo 0); echo $((n + 1)) > count; [ "$n" -lt 1 ]'


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        (["false"], 65, "the command fails without limits: it ends with exit code 1"),
        (
            ["sh", "-c", FLAKY],
            65,
            "fails without limits, though it did not in the run before: it ends with exit code 1",
        ),
        (["no-such-command-at-all"], 127, "no-such-command-at-all: command not found"),
        (["sh", "-c", "kill -SEGV $$"], 65, "the command fails without limits: "),
    ],
    ids=["fails", "flaky", "missing", "dies"],
)
def test_a_command_that_does_not_work_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], code: int, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done, _ = limits(tmp_path, "--", *command)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--budget", "3s", "true"], "--budget is for --limits"),
        (["--limits", "--heap", "memray", "true"], "do not go together"),
        (["--limits"], "which command?"),
        (["--limits", "--attach", "1"], "--attach PID looks at a running process"),
    ],
)
def test_options_that_do_not_go_together_are_refused(words: list[str], said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "necropsy", "profile", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert said in done.stderr
