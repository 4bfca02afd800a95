"""Runs functions of tests, each in a fork of this process, which has imported what they need: ``run_server.py OPTIONS``

OPTIONS is a JSON object: ``imports``, names of modules, and ``watcher``, the path of the socket of a watcher, which is
to trace this process and its forks. It answers on stdout, a JSON object a line: first how many ``threads`` it has after
the imports (a fork has only the one that called fork(2)), and whether it is ``traced``. stdin has a request a line,
``{"test": "/x/test_op.py", "function": "test_op", "folder": "/x", "begin": false}``, for a run in this folder, whose
buffers ``begin`` at forbidden pages if they are guarded. The answer is its ``pid``, and at its end another line with
its ``status``, as of waitpid(2).
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import sys
from typing import Any, Callable


def main(options: dict[str, Any]) -> int:
    """Answer on a copy of stdout: what a test prints goes nowhere. In a fork, return when the test's function has."""
    from necropsy.fuzz.target import guarding, server

    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    traced = _is_traced_by(options["watcher"])
    gc.disable()  # what an import makes stays: looking for what does not takes a sixth of TensorFlow's
    for name in options["imports"]:
        with contextlib.suppress(Exception):  # the test will tell
            importlib.import_module(name)
    gc.freeze()
    for name in [one for one in sys.modules if one.split(".")[0] == "necropsy"]:
        del sys.modules[name]  # a target may import the real one
    server.say(out, {"threads": len(os.listdir("/proc/self/task")), "traced": traced})
    for line in requests:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            server.end_with(os.getppid())
            for file in (out, requests):
                file.close()
            guarding.Guard({"begin": request["begin"], "inputs": 0, "call": 0})
            _function(request)()
            return 0
        server.say(out, {"pid": child})
        status = os.waitpid(child, 0)[1]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        server.say(out, {"status": status})
    return 0


def _is_traced_by(watcher: str) -> bool:
    from necropsy.watch import client

    os.environ.pop(client.VARIABLE, None)
    try:
        # Nothing is shown and nothing kept: whoever has started this process asks for the reports.
        return client.ask(watcher, b"register 0 0 0").startswith(b"yes")
    except OSError:
        return False


def _function(request: dict[str, Any]) -> Callable[[], Any]:
    """In a fork: the function, when all is as ``python -c`` has it in a session of its own."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["folder"])
    sys.path.insert(0, "")
    sys.argv[:] = ["-c", request["test"], request["function"]]
    found: Callable[[], Any] = runpy.run_path(request["test"])[request["function"]]
    gc.enable()
    return found


if __name__ == "__main__":
    import types

    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:1] = []
    package = types.ModuleType("necropsy")
    package.__path__ = [os.path.dirname(os.path.dirname(here))]
    sys.modules["necropsy"] = package
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is the campaign's to answer
    sys.exit(main(json.loads(sys.argv[1])))
