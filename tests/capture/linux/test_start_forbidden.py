"""Where the system forbids something, or has little: the command runs and ends as it would, or does not run at all."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from supervised import BY_LAUNCHER, NECROPSY

import needs
from forbidding import FORBID

SETTINGS: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "timeout": 60}
ENDS = {"an exit": "echo ran; exit 3", "a death": "echo ran; kill -SEGV $$"}

CALLS = {
    "ptrace": 101,
    "setsid": 112,
    "prctl": 157,
    "memfd_create": 319,
    "signalfd4": 289,
    "socketpair": 53,
    "pipe2": 293,
    "rt_sigtimedwait": 128,
    "rt_sigqueueinfo": 129,
    "rt_sigpending": 127,
    "kill": 62,
    "dup2": 33,
    "poll": 7,
    "wait4": 61,
    "waitid": 247,
    "getppid": 110,
    "prlimit64": 302,
    "setrlimit": 160,
    "sendto": 44,
    "recvfrom": 45,
    "process_vm_readv": 310,
    "clone": 56,
    "clock_nanosleep": 230,
    "close_range": 436,
    "uname": 63,
}
"""Numbers of x86-64."""


def compare(around: list[str], folder: Path, **settings: Any) -> None:
    """The same end, or one line and no beginning."""
    environment = {**os.environ, "NECROPSY_OUTPUT": str(folder)}
    for what, script in ENDS.items():
        command = ["sh", "-c", script]
        extra = {**SETTINGS, "env": environment, **settings}
        plain = subprocess.run([*around, *command], check=False, **extra)
        done = subprocess.run([*around, *NECROPSY, *command], check=False, **extra)
        if done.stdout or done.returncode != 125:
            assert (done.returncode, done.stdout) == (plain.returncode, plain.stdout), (what, done.stderr)
        else:
            assert len(done.stderr.splitlines()) == 1, what
            assert done.stderr.startswith(b"necropsy: "), what
        assert b"Traceback" not in done.stderr, what


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="system calls have other numbers there")
@pytest.mark.parametrize("call", CALLS)
def test_a_system_call_that_is_forbidden(call: str, tmp_path: Path) -> None:
    compare([sys.executable, "-c", FORBID, str(CALLS[call]), str(errno.EPERM)], tmp_path)


LIMITS = ["-s 128", "-n 12", "-n 16", "-n 30", "-v 60000", "-d 10000", "-f 0", "-t 5"]
FOR_THE_LAUNCHER = ["-s 64", "-S -s 64", "-s 16"]
"""With these Python dies before its first line."""
NO_LAUNCHER = pytest.mark.skipif(not BY_LAUNCHER, reason="necropsy was installed without its launcher")


@pytest.mark.parametrize("limit", [*LIMITS, *(pytest.param(one, marks=NO_LAUNCHER) for one in FOR_THE_LAUNCHER)])
def test_a_tiny_limit(limit: str, tmp_path: Path) -> None:
    compare(["sh", "-c", f'ulimit {limit} && exec "$@"', "sh"], tmp_path)


def test_the_command_has_the_limit_that_we_had(tmp_path: Path) -> None:
    script = 'ulimit -s 100 && exec "$@"'
    argv = ["sh", "-c", script, "sh", *NECROPSY, "sh", "-c", "ulimit -s; ulimit -Hs"]
    assert subprocess.run(argv, check=False, **SETTINGS).stdout == b"100\n100\n"


def ordinary(*words: str) -> list[str]:
    options = ("--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all")
    return ["setpriv", *options, *words]


def as_root(*options: str) -> bool:
    return (
        shutil.which(options[0]) is not None
        and subprocess.run([*options, "true"], check=False, **SETTINGS).returncode == 0
    )


@pytest.mark.skipif(
    not as_root(*ordinary("bash", "-c", 'exec "$@"', "bash", *NECROPSY)),
    reason="it takes root, and a Python that every user may run",
)
@pytest.mark.parametrize("limit", ["-u 1", "-u 3", "-i 0"])
def test_a_tiny_limit_of_an_ordinary_user(limit: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    compare(ordinary("bash", "-c", f'ulimit {limit} && exec "$@"', "bash"), tmp_path)


NO_PROC = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
NO_DEV = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /dev && exec "$@"', "sh"]


@needs.MOUNT
@pytest.mark.parametrize("around", [NO_PROC, NO_DEV], ids=["proc", "dev"])
def test_a_file_system_that_is_not_mounted(around: list[str], tmp_path: Path) -> None:
    compare(around, tmp_path)
