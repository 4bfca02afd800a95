"""Programs on AArch64 end, and do, under supervision what they end with and do without."""

from __future__ import annotations

import pytest
import supervision
from supervision import LOOPS, PATH, Case, Found

_PYTHON = ("python3", "-c")
SELECTS = """
import selectors, socket, subprocess
ends = socket.socketpair()
selector = selectors.DefaultSelector()
selector.register(ends[0], selectors.EVENT_READ)
child = subprocess.Popen(["sleep", "0.3"])
print(selector.select(1.0), child.wait())
"""
COMMANDS = {
    "exit 0": ("bash", "-c", "echo out; echo err >&2"),
    "exit 3": ("bash", "-c", "exit 3"),
    "killed": ("bash", "-c", "kill -KILL $$"),
    "terminated": ("bash", "-c", "kill -TERM $$"),
    "interrupted": ("bash", "-c", "kill -INT $$"),
    "a child dies": ("bash", "-c", "{ bash -c 'kill -SEGV $$'; } 2> /dev/null; echo $?"),
    "a pipe closes": ("bash", "-c", "set -o pipefail; yes | head -1; echo ${PIPESTATUS[@]}"),
    "handlers": ("bash", "-c", "trap 'echo usr' USR1; trap 'echo segv; exit 5' SEGV; kill -USR1 $$; kill -SEGV $$"),
    "ignored": ("bash", "-c", "trap '' SEGV; kill -SEGV $$; echo lived"),
    "stopped": ("bash", "-c", "(sleep 1; kill -CONT $$) & kill -STOP $$; echo went on; wait"),
    "executes": ("bash", "-c", "exec bash -c 'exec bash -c \"echo third; exit 4\"'"),
    "exit of a thread": (
        *_PYTHON,
        "import os, threading\nthreading.Thread(target=lambda: os._exit(9)).start()\nthreading.Event().wait()",
    ),
    "many threads": (
        *_PYTHON,
        "import threading\nt = [threading.Thread(target=print, args=(i,)) for i in range(40)]\n[(x.start(), x.join()) for x in t]",
    ),
    "many children": (
        *_PYTHON,
        "import os\nfor n in range(10):\n    p = os.fork()\n    if not p: os._exit(n)\n    print(os.waitpid(p, 0)[1])",
    ),
    "an exception": (*_PYTHON, "raise ValueError('no')"),
    "a handled fault": (
        *_PYTHON,
        "import signal, os\nsignal.signal(11, lambda *a: print('caught'))\nos.kill(os.getpid(), 11)\nprint('on')",
    ),
    "sockets and signals": (*_PYTHON, SELECTS),
}
LOGS = ("off", "tap")


@pytest.fixture(scope="module", params=LOOPS)
def found(request: pytest.FixtureRequest) -> dict[str, Found]:
    cases = [Case(f"plain {name}", command, plain=True) for name, command in COMMANDS.items()]
    cases += [
        Case(f"{log} {name}", command, options={"log": log}, user="user" if log == "tap" else None, loop=request.param)
        for name, command in COMMANDS.items()
        for log in LOGS
    ]
    return supervision.run(cases)


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("name", COMMANDS)
def test_it_ends_and_writes_as_without(found: dict[str, Found], name: str, log: str) -> None:
    plain, ours = found[f"plain {name}"], found[f"{log} {name}"]
    assert (ours.status, ours.out, ours.err) == (plain.status, plain.out, plain.err)


ATTACHED = """
import subprocess, sys, time
program = subprocess.Popen([sys.executable, "-c", "import time\\ndef wait(): time.sleep(1000)\\nwait()"])
while "wait" not in open(f"/proc/{program.pid}/wchan").read() and "nanosleep" not in open(f"/proc/{program.pid}/wchan").read():
    time.sleep(0.1)
done = subprocess.run([sys.executable, "-m", "necropsy", "attach", str(program.pid)], capture_output=True, text=True)
print(done.stderr, done.stdout, done.returncode, program.poll())
program.kill()
print(program.wait())
"""


def test_a_running_process_is_read_and_goes_on() -> None:
    ended = supervision.machine().run("python3", "-c", ATTACHED, user="user", environment=PATH, limit_s=300)
    said = " ".join(ended.out.split())
    assert "the main thread sleeps at <string>:2 in wait" in said
    assert said.endswith("0 None -9")
