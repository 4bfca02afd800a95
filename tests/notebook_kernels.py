"""A real kernel, as a front end sees it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager, start_new_kernel


@dataclass
class CellResult:
    """What a front end shows below a cell."""

    status: str = ""
    number: int = 0
    """In [number]."""
    stdout: str = ""
    stderr: str = ""
    shown: list[str] = field(default_factory=list)
    ename: str = ""
    evalue: str = ""
    traceback: str = ""


@dataclass
class Kernel:
    manager: KernelManager
    client: BlockingKernelClient

    def run(self, code: str, seconds: float = 60) -> CellResult:
        result = CellResult()

        def take(message: dict[str, Any]) -> None:
            content = message["content"]
            match message["msg_type"]:
                case "execute_input":
                    result.number = content["execution_count"]
                case "stream":
                    setattr(result, content["name"], getattr(result, content["name"]) + content["text"])
                case "display_data" | "execute_result" | "update_display_data":
                    result.shown.append(content["data"]["text/plain"])
                case "error":
                    result.ename, result.evalue = content["ename"], content["evalue"]
                    result.traceback = "\n".join(content["traceback"])
                case _:
                    pass

        # A kernel aborts by default what is asked within a moment of an error: the next cell of the test.
        reply = self.client.execute_interactive(
            code, timeout=seconds, output_hook=take, allow_stdin=False, stop_on_error=False
        )
        result.status = reply["content"]["status"]
        return result

    def wait_for(self, kind: str, identity: str, seconds: float = 60) -> dict[str, Any]:
        """Wait for what one request makes the kernel publish: a ``stream``, ``display_data``, ``execute_input``."""
        while True:
            message: dict[str, Any] = self.client.get_iopub_msg(timeout=seconds)
            if message["msg_type"] == kind and message["parent_header"].get("msg_id") == identity:
                return message

    def reply(self, identity: str, seconds: float = 60) -> dict[str, Any]:
        """Wait for the reply to one request, past late answers to ``wait_for_ready``, which asks each second."""
        while True:
            message: dict[str, Any] = self.client.get_shell_msg(timeout=seconds)
            if message["parent_header"].get("msg_id") == identity:
                return message


def processes_below(folder: Path) -> list[Path]:
    """The processes that were started with this folder as ``JUPYTER_PATH``: kernels, and what watches them."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another user's
            if os.fsencode(f"JUPYTER_PATH={folder}") in (path / "environ").read_bytes().split(b"\0"):
                found.append(path)
    return found


@contextmanager
def started(name: str, **options: Any) -> Iterator[Kernel]:
    manager, client = start_new_kernel(kernel_name=name, **options)
    kernel = Kernel(manager, client)
    try:
        yield kernel
    finally:
        kernel.client.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.context.destroy()
