"""Runs in the emulated machine: does what ``emulated_machine.py`` on the other side of a TCP connection asks for.

A request is a line of JSON and, behind it, ``size`` bytes of a tar archive to unpack at ``/``; the answer is a line of JSON.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import socketserver
import subprocess
import tarfile
import threading
from pathlib import Path
from typing import Any


class _Request(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        asked = json.loads(self.rfile.readline())
        data = self.rfile.read(asked["size"])
        if data:
            with tarfile.open(fileobj=io.BytesIO(data)) as archive:
                archive.extractall("/")  # our own, and into a machine that is thrown away
        said = _run(asked) if asked["words"] else {}
        self.wfile.write(json.dumps(said).encode() + b"\n")


def _run(asked: dict[str, Any]) -> dict[str, Any]:
    user = asked["user"]
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/usr/sbin",
        "HOME": "/root" if not user else "/home/user",
        "LANG": "C.UTF-8",
    }
    with contextlib.ExitStack() as stack:
        out, err = (
            stack.enter_context(Path(f"/tmp/.{name}-{os.getpid()}-{threading.get_ident()}").open("w+b"))
            for name in ("out", "err")
        )
        process = subprocess.Popen(
            asked["words"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            cwd=environment["HOME"],
            env=environment | asked["environment"],
            start_new_session=True,
            **({"user": user, "group": user, "extra_groups": []} if user else {}),
        )
        try:
            status = process.wait(asked["limit_s"])
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            status = None
        out.seek(0)
        err.seek(0)
        return {
            "status": status,
            "out": out.read().decode("utf-8", "replace"),
            "err": err.read().decode("utf-8", "replace"),
        }


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


_Server(("", 7000), _Request).serve_forever()
