"""A worker that nobody forks: loads the target, and makes calls until it dies: ``python spawned_worker.py OPTIONS``

OPTIONS is a JSON object: ``target``, ``results`` and ``log`` (paths of files, see ``worker``), ``data`` (the memory
that it may ask for, where the system can limit it) and ``parent``. It answers on stdout, a JSON object a line: what the
target offers, or why it cannot be loaded (``refused``); each new message; and ``{"done": true}`` after each batch.
stdin has a batch a line.
"""

from __future__ import annotations

import faulthandler
import json
import mmap
import os
import runpy
import signal
import sys
from typing import Any

_ONLY_ERRORS = 0x3
"""``SEM_FAILCRITICALERRORS | SEM_NOGPFAULTERRORBOX``: no dialog waits for somebody to close it."""


def main(options: dict[str, Any], server: dict[str, Any]) -> int:
    """Answer on a copy of stdout; what the target prints goes to the log. ``server``: the names of ``server.py``."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.dup(1)
    out = os.fdopen(os.dup(answers), "w", encoding="ascii", newline="\n")
    _prepare(options, server)
    from necropsy.fuzz.target import functions, worker

    for name in [one for one in sys.modules if one.split(".")[0] == "necropsy"]:
        del sys.modules[name]  # a target may import the real one
    try:
        offered, names = functions.loaded(options["target"])
    except functions.RefusedError as error:
        server["say"](out, {"refused": str(error), "what": error.what})
        return 0
    refusals = names.pop("__refusals__")
    names.pop("__warm__", None)
    with open(options["results"], "r+b") as file:
        shared = mmap.mmap(file.fileno(), worker.SHARED)
    server["say"](out, {"offered": offered, "python": sys.version.split()[0]})
    seen: set[bytes] = set()
    for line in requests:
        worker.make_calls(json.loads(line), shared, names, refusals, answers, seen)
        server["say"](out, {"done": True})
    return 0


def _prepare(options: dict[str, Any], server: dict[str, Any]) -> None:
    """Files, signals and limits as a call finds them."""
    nowhere = os.open(os.devnull, os.O_RDONLY)
    log = os.open(options["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    for standard, file in ((0, nowhere), (1, log), (2, log)):
        os.dup2(file, standard)
    faulthandler.enable(file=log, all_threads=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is the campaign's to answer
    if sys.platform == "win32":
        import ctypes

        ctypes.windll.kernel32.SetErrorMode(_ONLY_ERRORS)
        return
    import resource

    from necropsy.fuzz.target import worker

    server["end_with"](options["parent"])
    worker.limit(resource.RLIMIT_CORE, 0)
    if options["data"] is not None:
        worker.limit(resource.RLIMIT_DATA, options["data"])


if __name__ == "__main__":
    _server = runpy.run_path(os.path.join(os.path.dirname(os.path.abspath(__file__)), "server.py"))
    _server["use_own_folder"]()
    sys.exit(main(json.loads(sys.argv[1]), _server))
