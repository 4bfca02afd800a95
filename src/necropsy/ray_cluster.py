"""A Ray cluster that the user named, or one that is started for this run; never one that happens to be there."""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from necropsy.errors import NecropsyError

LOCAL = "local"
_CONNECT_S = 10.0
_OBJECTS = 100 << 20
"""Bytes of a local cluster's object store: what is sent through it is small."""


@contextlib.contextmanager
def connected(address: str, cpus: int | None = None) -> Iterator[Any]:
    """Connect to a cluster; the module ``ray``. ``cpus``: how many a cluster of ``local`` has.

    Raises NecropsyError where Ray is not installed, or there is no cluster.
    """
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        failed = NecropsyError("--ray needs Ray, which is not installed")
        failed.hint = "pip install 'necropsy[ray]'"
        raise failed from error
    _check(address)
    wanted: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}
    if address == LOCAL:
        wanted |= {"include_dashboard": False, "_node_ip_address": "127.0.0.1", "object_store_memory": _OBJECTS}
        wanted |= {"num_cpus": cpus} if cpus is not None else {}
    # Ray prints to stdout that a worker has died; our results go there.
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
        try:
            ray.init(address=address, **wanted)
        except Exception as error:
            said = str(error).strip().splitlines() or [type(error).__name__]
            raise NecropsyError(f"cannot connect to the Ray cluster {address}: {said[0]}") from error
        try:
            yield ray
        finally:
            ray.shutdown()


def _check(address: str) -> None:
    """Ask whether anything listens there: Ray itself tries for minutes. Raises ``NecropsyError`` if not."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise NecropsyError(f"cannot connect to the Ray cluster {address}: {why}") from error
