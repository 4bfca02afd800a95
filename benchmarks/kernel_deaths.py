"""How many reports reach the dead cell through a Jupyter server, and how soon: python benchmarks/kernel_deaths.py.

Starts a Jupyter server, talks to it over its WebSocket as JupyterLab does, and has one watched kernel after the other die.
The server restarts each; the next cell says whether the report came there instead. It needs
``jupyter_server`` and ``ipykernel``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

_TOKEN = "local"
_CRASH = "import ctypes\nctypes.string_at(0)"
_HEADLINE, _REPORT = "The kernel died while", "Full report: necropsy show"
_WAIT_S = 30.0
_START_S = 60.0


def main() -> int:
    """Print the counts, and the seconds from the death to the headline and to the whole report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--deaths", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, _server(Path(name)) as port:
        in_dead_cell, in_next_cell, twice, times = asyncio.run(_deaths(port, options.deaths))
    neither = options.deaths - len(in_dead_cell | in_next_cell)
    print(
        f"deaths {options.deaths}: in the dead cell {len(in_dead_cell)}, in the next one {len(in_next_cell)}, ", end=""
    )
    print(f"in both {twice}, in neither {neither}")
    for what, seconds in times.items():
        if seconds:
            print(f"{what}: median {statistics.median(seconds):.2f} s, longest {max(seconds):.2f} s")
    return 0


@contextmanager
def _server(folder: Path) -> Iterator[int]:
    """A Jupyter server with a watched kernel; its port."""
    python = [sys.executable, "-m"]
    subprocess.run([*python, "necropsy", "jupyter", "install", "--name", "watched", "--prefix", folder], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    settings = [
        "--ip=127.0.0.1",
        f"--port={port}",
        "--no-browser",
        "--allow-root",
        f"--IdentityProvider.token={_TOKEN}",
    ]
    process = subprocess.Popen(
        [*python, "jupyter_server", *settings],
        cwd=folder,
        env={**os.environ, "JUPYTER_PATH": str(folder / "share" / "jupyter"), "HOME": str(folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + _START_S
        while time.monotonic() < until:
            try:
                _request(port, "GET", "status")
                break
            except OSError:
                time.sleep(0.2)
        yield port
    finally:
        process.terminate()
        process.wait()


def _request(port: int, method: str, path: str, body: object = None) -> Any:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"token {_TOKEN}"},
    )
    with urllib.request.urlopen(request, timeout=_START_S) as answer:
        return json.loads(answer.read() or b"null")


async def _deaths(port: int, count: int) -> tuple[set[int], set[int], int, dict[str, list[float]]]:
    here, later, twice = set(), set(), 0
    times: dict[str, list[float]] = {"headline": [], "whole report": []}
    for number in range(count):
        # A new one each time: Jupyter gives up a kernel that dies again and again soon after its start.
        kernel = _request(port, "POST", "kernels", {"name": "watched"})["id"]
        connection = await _connected(port, kernel)
        await _cell(connection, "1 + 1", lambda _text, kind: kind == "idle")
        began = time.monotonic()
        told = await _cell(connection, _CRASH, lambda text, _kind: _REPORT in text)
        if _HEADLINE in told.text:
            here.add(number)
            times["headline"].append(told.at[_HEADLINE] - began)
        if _REPORT in told.text:
            times["whole report"].append(told.at[_REPORT] - began)
        connection.close()
        await _restarted(port, kernel)
        connection = await _connected(port, kernel)
        after = await _cell(connection, "2 + 2", lambda _text, kind: kind == "idle")
        if _HEADLINE in after.text:
            later.add(number)
            twice += number in here
        connection.close()
        _request(port, "DELETE", f"kernels/{kernel}")
    return here, later, twice, times


class _Told:
    """What a front end was sent for one cell, and when its parts came."""

    def __init__(self) -> None:
        self.text = ""
        self.at: dict[str, float] = {}

    def add(self, text: str) -> None:
        self.text += text
        for part in (_HEADLINE, _REPORT):
            if part in self.text:
                self.at.setdefault(part, time.monotonic())


async def _connected(port: int, kernel: str) -> WebSocketClientConnection:
    url = f"ws://127.0.0.1:{port}/api/kernels/{kernel}/channels?session_id={uuid.uuid4().hex}"
    return await websocket_connect(HTTPRequest(url, headers={"Authorization": f"token {_TOKEN}"}))


async def _restarted(port: int, kernel: str) -> None:
    """Wait until the server has started the kernel again."""
    until = time.monotonic() + _WAIT_S
    while time.monotonic() < until:
        if _request(port, "GET", f"kernels/{kernel}")["execution_state"] in {"idle", "starting"}:
            return
        await asyncio.sleep(0.1)


async def _cell(connection: WebSocketClientConnection, code: str, is_over: Any) -> _Told:
    """Run a cell; returns what came for it until ``is_over``, or for 30 s."""
    identity, told = uuid.uuid4().hex, _Told()
    content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
    header = {"msg_id": identity, "msg_type": "execute_request", "username": "", "session": "s", "version": "5.3"}
    message = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
    await connection.write_message(json.dumps(message))
    until = time.monotonic() + _WAIT_S
    while (left := until - time.monotonic()) > 0:
        try:
            answer = await asyncio.wait_for(connection.read_message(), left)
        except TimeoutError:
            break
        if answer is None:
            break
        got = json.loads(answer)
        if got.get("parent_header", {}).get("msg_id") != identity:
            continue
        kind = got["content"].get("execution_state", got["msg_type"])
        told.add(_shown(got))
        if is_over(told.text, kind):
            break
    return told


def _shown(message: dict[str, Any]) -> str:
    content = message["content"]
    if message["msg_type"] == "stream":
        return str(content["text"])
    return str(content.get("data", {}).get("text/plain", "")) if isinstance(content.get("data"), dict) else ""


if __name__ == "__main__":
    sys.exit(main())
