"""Runs a script again and again in forks of one interpreter: ``python fork_server.py SCRIPT``

Run by the program's own interpreter, so it needs nothing but the standard library, of any Python from 3.6 on. It
imports what the script imports at its top, once. Then it reads requests from stdin, a line of JSON each, and answers
each on stdout: ``{"argv": [...], "timeout": 10}`` runs the script so in a fork, ``{"status": 11}`` is how waitpid(2)
saw it end.

A fork has only the thread that called fork(2): what other threads held stays locked. So the first line that is written
tells how many threads there are after the imports, and who asks decides.
"""

import ast
import importlib
import json
import os
import resource
import runpy
import signal
import sys
import time
from typing import Any, TextIO


def imports_of(source: bytes) -> "list[str]":
    """The modules that the script imports at its top level, up to the first statement that does other things."""
    names = []  # type: list[str]
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names.append(node.module)
        elif not (isinstance(node, ast.Expr) and isinstance(getattr(node, "value", None), ast.Constant)):
            break
    return names


def serve(script: str) -> None:
    """Import, tell that it is ready, and answer requests until stdin ends."""
    answers = os.fdopen(os.dup(1), "w")
    nothing = os.open(os.devnull, os.O_RDWR)
    requests = os.fdopen(os.dup(0), "r")
    for handle in (0, 1, 2):
        os.dup2(nothing, handle)
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    with open(script, "rb") as file:
        source = file.read()
    began = time.time()
    for name in imports_of(source):
        if name != "__future__":
            importlib.import_module(name)
    threads = len(os.listdir("/proc/self/task"))
    say(answers, {"threads": threads, "imports_s": time.time() - began})
    for line in requests:
        say(answers, trial(script, json.loads(line)))


def say(file: "TextIO", answer: "dict[str, Any]") -> None:
    """One line of JSON."""
    file.write(json.dumps(answer) + "\n")
    file.flush()


def trial(script: str, request: "dict[str, Any]") -> "dict[str, Any]":
    """Run the script in a fork, in a process group of its own that is ended with it."""
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        status = 1
        try:
            sys.argv = [script] + request["argv"]
            os.environ.update(request.get("environment", {}))
            runpy.run_path(script, run_name="__main__")
            status = 0
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else int(error.code is not None)
        except BaseException:
            status = 1
        finally:
            os._exit(status & 0xFF)
    deadline = time.time() + request["timeout"]
    timed_out = False
    wait = 0.0005
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            break
        if time.time() > deadline:
            timed_out = True
            kill(pid)
            _, status = os.waitpid(pid, 0)
            break
        time.sleep(wait)
        wait = min(0.01, wait * 1.5)
    kill(pid)
    return {"status": status, "timed_out": timed_out}


def kill(group: int) -> None:
    """End what is left of a trial."""
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass


if __name__ == "__main__":
    serve(sys.argv[1])
