"""Signals that a program ignores interrupt none of its calls on AArch64, whichever loop follows it."""

from __future__ import annotations

import subprocess

import pytest
import supervision
from supervision import LOOPS, Case

import crashers.build

STOPPED = "stopped"
"""By SIGSTOP and SIGCONT. There the two may differ on a busy machine (docs/explanation/limits.md)."""


def _results(said: str) -> dict[tuple[str, str], str]:
    """By call and by what happened during it: what the call returned."""
    lines = (line.split(maxsplit=2) for line in said.splitlines())
    return {(call, way): rest for call, way, rest in lines}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[tuple[str, str], str]]:
    """Of the program alone ("plain"), and under each loop."""
    machine = supervision.machine()  # without which the test is skipped
    program = tmp_path_factory.mktemp("signals") / "ignored"
    source = crashers.build.HERE / "ignored_signals.c"
    words = ["aarch64-linux-gnu-gcc", "-O1", "-pthread", "-w", str(source), "-o", str(program)]
    subprocess.run(words, check=True)
    machine.put({"/opt/ignored": program.read_bytes()})
    command = ["/opt/ignored"]
    cases = [Case(loop, command, loop=loop, options={"log": "off"}) for loop in LOOPS]
    found = supervision.run([Case("plain", command, plain=True), *cases])
    assert {one.status for one in found.values()} == {0}
    return {name: _results(one.out) for name, one in found.items()}


@pytest.mark.parametrize("loop", LOOPS)
def test_calls_return_what_they_return_without(results: dict[str, dict[tuple[str, str], str]], loop: str) -> None:
    plain, ours = (
        {key: value for key, value in results[name].items() if key[1] != STOPPED} for name in ("plain", loop)
    )
    assert len(results[loop]) == 88
    if supervision.PAGES == "16k":  # its kernel does not tell the first argument (docs/explanation/limits.md)
        ours = {key: plain[key] if value == "-1 EINTR" else value for key, value in ours.items()}
    assert ours == plain
