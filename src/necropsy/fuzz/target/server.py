"""The fork server: loads the target once, and forks workers that make calls: ``python server.py OPTIONS``

OPTIONS is a JSON object: ``target``, ``descriptors`` (see ``worker``), and ``parent``, the process that it ends with.
It answers on stdout, a JSON object a line: first what the target offers and which large ``imports`` it took, or why it
cannot be loaded (``refused``).
stdin has a request a line, ``{"data": 4294967296, "one_thread": false}``, for the next worker. The answer is its
``pid`` and whether it is ``traced``, and at its end another line that says how it ended. Nothing of TensorFlow's
runtime may start here: a fork would lose its threads.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import sys
import types
from typing import Any

_PDEATHSIG = 1
_LARGE = ("numpy", "tensorflow", "torch")
"""Modules that take long to import."""


def main(options: dict[str, Any]) -> int:
    """Answer on a copy of stdout: what the target itself prints goes nowhere."""
    end_with(options["parent"])
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 1)
    gc.disable()  # what an import makes stays: looking for what does not takes a sixth of TensorFlow's
    from necropsy.fuzz.target import functions, guarding, ops, wait, worker

    for name in [one for one in sys.modules if one.split(".")[0] == "necropsy"]:
        del sys.modules[name]  # a target may import the real one
    try:
        offered, names = (functions if "function" in options["target"] else ops).loaded(options["target"])
    except functions.RefusedError as error:
        say(out, {"refused": str(error), "what": error.what})
        return 0
    sanitized = options["target"].get("sanitized")
    if sanitized is not None:
        names["__sanitized__"] = sanitized
    imports = [one for one in _LARGE if one in sys.modules]
    python = sys.version.split()[0]
    say(out, {"offered": offered, "imports": imports, "python": python, "guard": guarding.is_loaded()})
    share_memory()
    for line in sys.stdin:
        limits = json.loads(line)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            end_with(os.getppid())
            os.close(writing)
            os.read(reading, 1)  # until it is traced
            os.close(reading)
            worker.work(options["descriptors"], limits, names)
            os._exit(0)
        os.close(reading)
        traced = wait.trace(child)
        say(out, {"pid": child, "traced": traced})
        os.close(writing)
        say(out, wait.ended(child, is_traced=traced, wanted=options["target"].get("library") or sanitized))
    return 0


def share_memory() -> None:
    """Leave as little as possible that each worker changes, and that it gets a copy of for that reason."""
    gc.enable()
    gc.collect()
    gc.freeze()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # not in musl
    if trim is not None:
        trim(0)


def say(out: Any, answer: dict[str, Any]) -> None:
    """Print one line; where nobody reads any more, end."""
    try:
        out.write(json.dumps(answer) + "\n")
        out.flush()
    except OSError:
        os._exit(1)


def end_with(parent: int) -> None:
    """The kernel ends this process with its parent."""
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def use_own_folder() -> None:
    """Make this folder importable as ``necropsy.fuzz.target``, and no other module of it by accident."""
    here = os.path.dirname(os.path.abspath(__file__))
    if sys.path and os.path.abspath(sys.path[0]) == here:
        sys.path.pop(0)
    package = types.ModuleType("necropsy")
    package.__path__ = [os.path.dirname(os.path.dirname(here))]
    sys.modules["necropsy"] = package


if __name__ == "__main__":
    use_own_folder()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is the campaign's to answer
    sys.exit(main(json.loads(sys.argv[1])))
