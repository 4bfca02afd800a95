"""What others have connected to in a process that dies: its connections outlive it."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from necropsy.watch import asking, client

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="connections outlive a process on Linux only")

SERVER = """
import ctypes, socket, necropsy
listener = socket.create_server(("127.0.0.1", 0))
assert necropsy.enable(show=False, keep=False)
print(listener.getsockname()[1], flush=True)
one, _ = listener.accept()
other, _ = listener.accept()
other.close()
input()
one.sendall(b"before ")
ctypes.string_at(0)
"""


def test_a_front_end_is_told_over_its_own_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(client.VARIABLE, "")  # it is put back after the test
    client.start()
    sent, receive = threading.Event(), socket.recv_fds

    def received(*arguments: Any) -> Any:
        sent.set()
        return receive(*arguments)

    monkeypatch.setattr(socket, "recv_fds", received)
    process = subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout, ThreadPoolExecutor() as threads:
        port = int(process.stdout.readline())
        with socket.create_connection(("127.0.0.1", port)) as one, socket.create_connection(("127.0.0.1", port)):
            asked = threads.submit(asking.connections, process.pid, port, 60)
            sent.wait()
            asking.report(
                1, 0.1
            )  # the watcher answers in the order in which it is asked: it knows now what we wait for
            process.stdin.write(b"\n")
            process.stdin.flush()
            (line,) = asked.result()
            process.wait(60)
            with line:
                line.settimeout(10)
                line.sendall(b"after")
            assert one.makefile("rb").read() == b"before after"


def test_a_process_that_ends_well_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(client.VARIABLE, "")  # it is put back after the test
    client.start()
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1)"]) as process:
        assert asking.connections(process.pid, 1, 60) == []
