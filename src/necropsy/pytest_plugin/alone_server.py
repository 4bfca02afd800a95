"""Runs a test alone for a session that cannot have the keeper do it: the controller of pytest-xdist goes on meanwhile.

The keeper forks this process before the first session, so nothing of the user's is imported in it. It forks once more
for each test that is asked for.
"""

from __future__ import annotations

import os
import pickle
import socket

from necropsy.pytest_plugin import clerk
from necropsy.pytest_plugin.captured_output import CapturedOutput
from necropsy.pytest_plugin.children import Children


class AloneServer:
    """Both ends: ``serve`` runs in a process of its own."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()

    def serve(self, output: CapturedOutput) -> str:
        """Returns in each process that is to run a test: the node id of the test.

        Otherwise it answers until nobody is left who could ask, and ends.
        """
        children = Children()
        try:
            self._ours.close()
            while True:
                nodeid, limit = clerk.receive(self._theirs)
                pid = children.fork()
                if not pid:
                    self._theirs.close()
                    output.detach()
                    return str(nodeid)
                clerk.send(self._theirs, children.wait(pid, limit))
        except (EOFError, OSError):
            os._exit(0)
        except BaseException:  # noqa: BLE001 - a second session must not come of it
            os._exit(1)

    def started(self) -> None:
        """In the process that asks, once the server has been forked."""
        self._theirs.close()

    def run(self, nodeid: str, limit: float) -> int | None:
        """Run the test: the wait status of its process, None where it did not end in time.

        Raises OSError where the server has ended.
        """
        try:
            clerk.send(self._ours, (nodeid, limit))
            status: int | None = clerk.receive(self._ours)
        except (EOFError, pickle.PickleError) as error:
            raise OSError("the process that runs tests alone has ended") from error
        return status
