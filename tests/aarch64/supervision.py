"""What is run in the emulated machine, and what was found of it."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import emulated_machine
import installation
import large_pages
import machine_image
import msgspec
import pytest
from emulated_machine import Machine

from necropsy import serialize
from necropsy.model import Report

SCRIPT = "/opt/supervised_cases.py"
_CASES = "/opt/cases.json"
_LIMIT_S = 900.0
_LIMIT_OF_EACH_S = 40.0
"""On a machine that is busy with other things, a case took 20 s."""
PAGES = os.environ.get("NECROPSY_AARCH64_PAGES") or "4k"
"""``make test-aarch64 PAGES=16k`` or ``64k``: pages of that size and addresses of 52 bits, instead of 4 KiB and 48 bits."""
LARGE_PAGES = PAGES != "4k"
_HERE = Path(__file__).parent
_TOOLS = ("qemu-system-aarch64", "aarch64-linux-gnu-g++", installation.COMPILER)
PATH = {"PATH": f"{installation.FOLDER}/bin:/usr/local/bin:/usr/bin:/usr/sbin"}
"""The environment variable with which `necropsy`, and `python3` with it, are what was installed there."""
LOOPS = ("c", "python")
"""The two loops of the tracer."""


@functools.cache
def machine() -> Machine:
    """The one machine of all tests, with necropsy installed in it; off when the tests are over."""
    if machine_image.PLACE not in os.environ:
        pytest.skip("`make test-aarch64` boots an emulated machine, which takes minutes")
    missing = [one for one in _TOOLS if shutil.which(one) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    stack = contextlib.ExitStack()
    atexit.register(stack.close)
    image = machine_image.made()
    booted = stack.enter_context(emulated_machine.booted(large_pages.made(image, PAGES) if LARGE_PAGES else image))
    installation.install(booted, image)
    booted.put({SCRIPT: _HERE / "supervised_cases.py"})
    return booted


@dataclass(frozen=True)
class Case:
    """A command. ``stack``: its limit in bytes, 0 for the usual one. ``plain``: without supervision. ``loop``: of ``LOOPS``."""

    name: str
    command: Sequence[str]
    user: str | None = None
    stack: int = 0
    plain: bool = False
    loop: str = "c"
    options: dict[str, Any] = field(default_factory=dict)
    """Of ``RunOptions``."""


@dataclass(frozen=True)
class Found:
    """How it ended, as ``subprocess.Popen.returncode`` says it, what it wrote, and the reports of its deaths.

    ``opened``: the reports of the cores that were kept of them.
    """

    status: int
    out: str
    err: str
    reports: tuple[Report, ...]
    opened: tuple[Report, ...]

    @property
    def report(self) -> Report:
        """The only one."""
        (one,) = self.reports
        return one


def run(cases: Sequence[Case]) -> dict[str, Found]:
    """Run all of them there, two at a time; by name. Raises OSError where the machine fails."""
    there = machine()
    there.put({_CASES: json.dumps([asdict(one) for one in cases]).encode()})
    limit_s = _LIMIT_S + _LIMIT_OF_EACH_S * len(cases)
    ended = there.run(f"{installation.FOLDER}/bin/python3", SCRIPT, _CASES, environment=PATH, limit_s=limit_s)
    if ended.status != 0:
        raise OSError(f"the cases ended with {ended.status}: {ended.err[-2000:]}")
    found: dict[str, Found] = {}
    for line in ended.out.splitlines():
        said = json.loads(line)
        reports, opened = (_reports(said.get(name, ())) for name in ("reports", "opened"))
        found[said["name"]] = Found(said["status"], said["out"], said["err"], reports, opened)
    return found


def _reports(said: Sequence[object]) -> tuple[Report, ...]:
    return tuple(msgspec.convert(one, Report, dec_hook=serialize.from_json) for one in said)
