"""``necropsy`` in a fork of a process that has loaded it: for tests of what it says, not of how it starts.

To load it takes three times as long as to judge a death. What is forked gets its words, its working directory, its
environment and its limits as a new process would, and dies as one would. It has SIGINT at its default, no terminal, and
what it leaves behind is killed.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import necropsy.cli.commands
import necropsy.document
import necropsy.explanation
import necropsy.viewing  # noqa: F401 - loaded here, and not in each fork
from necropsy.cli import main
from necropsy.confirm import subreaper
from necropsy.confirm.warm_start import WarmStart

LIMIT_S = 600.0
"""Ends what hangs, and decides nothing else."""
AT_START = ("PYTHON", "LC_", "LANG", "LD_", "GLIBC_", "MALLOC_")
"""Variables with which a process has to be started, for they decide how Python or the C library start."""


@cache
def server(before: tuple[str, ...] = ()) -> WarmStart:
    here = str(Path(__file__).parent)
    path = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
    made = WarmStart({**os.environ, "PYTHONPATH": path}, Path.cwd(), "warm:in_a_fork", before)
    atexit.register(made.close)
    return made


def may_fork(words: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether it would be the same as a process that is started: ``doctor`` starts itself again."""
    decisive = {name for name in {*environment, *os.environ} if name.startswith(AT_START)}
    same = all(environment.get(name) == os.environ.get(name) for name in decisive)
    return sys.platform == "linux" and same and words[:1] != ["doctor"] and hasattr(os, "pidfd_open")


def run(
    *words: object,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    limits: Mapping[int, tuple[int, int]] | None = None,
    errors: str = "strict",
    before: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """``python -m necropsy WORDS`` with an empty stdin and both outputs captured.

    ``limits``: of ``resource``; ``before``: what is put in front of it.
    """
    given = [str(word) for word in words]
    environment = dict(os.environ if env is None else env)
    if not may_fork(given, environment):
        return subprocess.run(
            [*before, sys.executable, "-m", "necropsy", *given],
            capture_output=True,
            text=True,
            errors=errors,
            timeout=LIMIT_S,
            check=False,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            env=environment,
            preexec_fn=lambda: lower(limits or {}),
        )
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.NamedTemporaryFile() as ended:
        request = json.dumps([str(cwd or os.getcwd()), environment, dict(limits or {})])
        # Its standard input, which is empty, is where it leaves how it has ended: an exit status has no room for that.
        files = (ended.fileno(), out.fileno(), err.fileno())
        status, _ = server(tuple(before)).run([request, *given], files, LIMIT_S)
        if status is None:
            raise subprocess.TimeoutExpired(given, LIMIT_S)
        for file in (out, err, ended):
            file.seek(0)
        code = int(ended.read() or b"125")
        said = [file.read().decode("utf-8", errors) for file in (out, err)]
    return subprocess.CompletedProcess(given, code, *said)


def lower(limits: Mapping[int, tuple[int, int]]) -> None:
    for number, limit in limits.items():
        resource.setrlimit(number, limit)


def in_a_fork(words: Sequence[str]) -> int:
    """In the fork: start what is as a new process would be, wait for it, and leave its return code in the file."""
    pid = os.fork()
    if pid:
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.write(0, b"%d" % code)
        return 0
    code = 125
    try:
        cwd, environment, limits = json.loads(words[0])
        code = new_process(cwd, environment, limits, words[1:])
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def new_process(cwd: str, environment: dict[str, str], limits: dict[str, tuple[int, int]], words: Sequence[str]) -> int:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.chdir(cwd)
    for name in [name for name in os.environ if name not in environment]:
        del os.environ[name]
    os.environ.update(environment)
    lower({int(number): limit for number, limit in limits.items()})
    ctypes.CDLL(None).prctl(subreaper.PR_SET_PDEATHSIG, 0, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return main(words)
    except SystemExit as end:  # of a shell's completion
        return int(end.code or 0)
