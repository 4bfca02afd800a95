"""An AArch64 machine in a system emulator: boots the root file system of ``machine_image.py``, and runs commands in it."""

from __future__ import annotations

import contextlib
import io
import json
import socket
import subprocess
import tarfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_BOOT_S = 300.0
_PORT = 7000
"""In the machine; also in ``machine_agent.py``."""


@dataclass(frozen=True)
class Ended:
    """How a command ended: as ``subprocess.Popen.returncode`` says it, None where it took too long."""

    status: int | None
    out: str
    err: str


class Machine:
    """One that runs. Nothing that is written in it is kept."""

    def __init__(self, port: int) -> None:
        """``port``: on this machine's loopback interface, behind which its agent listens."""
        self._port = port

    def run(
        self,
        *words: str,
        user: str | None = None,
        environment: Mapping[str, str] | None = None,
        limit_s: float = 120.0,
    ) -> Ended:
        """Run a command to its end, as root or as ``user``. Raises OSError where the machine does not answer."""
        asked = {"words": words, "user": user, "environment": dict(environment or {}), "limit_s": limit_s}
        said = self._ask(asked, b"", limit_s + 60)
        return Ended(said["status"], said["out"], said["err"])

    def put(self, files: Mapping[str, bytes | Path]) -> None:
        """Write files, or folders with all that is in them, by their absolute path there; all may be executed."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for name, content in files.items():
                if isinstance(content, Path):
                    archive.add(content, name.lstrip("/"))
                    continue
                entry = tarfile.TarInfo(name.lstrip("/"))
                entry.size, entry.mode = len(content), 0o755
                archive.addfile(entry, io.BytesIO(content))
        self._ask({"words": ()}, packed.getvalue(), 120)

    def _ask(self, asked: Mapping[str, object], data: bytes, limit_s: float) -> dict[str, Any]:
        with socket.create_connection(("127.0.0.1", self._port), timeout=limit_s) as connection:
            connection.sendall(json.dumps({**asked, "size": len(data)}).encode() + b"\n" + data)
            with connection.makefile("rb") as answer:
                line = answer.readline()
        if not line:
            raise OSError("the machine did not answer")
        said: dict[str, Any] = json.loads(line)
        return said


@contextlib.contextmanager
def booted(root: Path, *, processors: int = 2, memory_mib: int = 2048) -> Iterator[Machine]:
    """Boot it and wait until it answers; ``root``: the folder that ``machine_image.made`` returned.

    Raises OSError where it does not come up in time.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["qemu-system-aarch64", "-M", "virt,mte=on", "-cpu", "max,pauth-impdef=on", "-accel", "tcg,thread=multi"]
    words += ["-m", f"{memory_mib}M", "-smp", str(processors), "-nographic", "-no-reboot"]
    words += ["-kernel", str(root / "vmlinuz"), "-initrd", str(root / "initramfs.gz")]
    words += ["-append", "console=ttyAMA0 quiet panic=-1"]
    words += ["-drive", f"file={root / 'root.ext4'},format=raw,if=virtio,snapshot=on"]
    words += ["-netdev", f"user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:{_PORT}"]
    words += ["-device", "virtio-net-pci,netdev=net,romfile="]
    with (root / "console").open("wb") as console:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.STDOUT)
    try:
        machine = Machine(port)
        _wait(machine, process)
        yield machine
    finally:
        process.kill()
        process.wait()


def _wait(machine: Machine, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _BOOT_S
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(OSError, ValueError):
            machine.run("/bin/true", limit_s=20)
            return
        time.sleep(0.5)
    raise OSError("the machine did not come up; see the file 'console' beside its disk")
