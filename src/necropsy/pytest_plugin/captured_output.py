"""What a dead session had written, where pytest captured it.

With ``--capture=fd`` the session inherits the files, so the keeper reads what is left in them. With ``sys`` or
``tee-sys`` what is written is also copied to files here. With ``-s`` it went straight to the terminal.
What faulthandler writes has a file of its own.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import tempfile
from typing import IO, Any

import pytest


class CapturedOutput:
    """Both streams, as the keeper sees them."""

    def __init__(self, config: pytest.Config) -> None:
        """After pytest has begun to capture."""
        manager: Any = config.pluginmanager.get_plugin("capturemanager")
        self._capture: Any = getattr(manager, "_global_capturing", None)
        self._copies: list[IO[bytes]] = []
        self.manager = manager
        if self._capture is not None and getattr(manager, "_method", "") in {"sys", "tee-sys"}:
            with contextlib.suppress(OSError):
                self._copies = [tempfile.TemporaryFile(buffering=0) for _ in range(2)]  # noqa: SIM115

    def copy(self) -> None:
        """In the session: have what is kept in memory copied."""
        if not self._copies or self._capture is None:
            return
        for stream, copy in zip((self._capture.out, self._capture.err), self._copies, strict=True):
            file = getattr(stream, "tmpfile", None)
            if file is not None:
                _copy(file, copy.fileno())

    def handles(self) -> tuple[int, ...]:
        """The two files; none where nothing is captured."""
        if self._copies:
            return tuple(file.fileno() for file in self._copies)
        try:
            return tuple(stream.tmpfile.fileno() for stream in (self._capture.out, self._capture.err))
        except (AttributeError, OSError):
            return ()

    def take(self) -> tuple[str, str]:
        """In the keeper: what the session that died has left; nothing is left after that."""
        if self._copies:
            return _taken(self._copies[0]), _taken(self._copies[1])
        if self._capture is None:
            return "", ""
        try:
            out, err = self._capture.readouterr()
        except Exception:  # noqa: BLE001 - private, and may change; the report has the end of stderr as well
            return "", ""
        return str(out), str(err)

    def detach(self) -> None:
        """In a process whose output nobody wants: from now on it is written to files of its own."""
        with contextlib.suppress(OSError):
            for standard, handle in enumerate(self.handles(), start=1):
                with tempfile.TemporaryFile(buffering=0) as file:
                    if os.path.sameopenfile(standard, handle):
                        os.dup2(file.fileno(), standard)
                    os.dup2(file.fileno(), handle, inheritable=False)

    def release(self) -> None:
        """In the keeper: give stdout and stderr back, so that it can speak."""
        if self.manager is not None:
            with contextlib.suppress(Exception):
                self.manager.suspend_global_capture(in_=True)


def _copy(file: Any, handle: int) -> None:
    write, truncate, owner = file.write, file.truncate, os.getpid()

    def copied(text: str) -> int:
        if os.getpid() == owner:
            with contextlib.suppress(OSError):
                os.write(handle, text.encode("utf-8", "backslashreplace"))
        return int(write(text))

    def emptied(size: int | None = None) -> int:
        if os.getpid() == owner:
            with contextlib.suppress(OSError):
                os.lseek(handle, 0, os.SEEK_SET)
                os.ftruncate(handle, 0)
        return int(truncate(size))

    file.write, file.truncate = copied, emptied


def _taken(file: IO[bytes]) -> str:
    file.seek(0)
    data = file.read()
    file.seek(0)
    file.truncate()
    return data.decode("utf-8", "replace")


class FaultFile:
    """Where faulthandler writes in a session: not to the terminal, between the results of the tests.

    A file without a name that the keeper and the sessions share. Where the session is traced, the report says more.
    Where it is not, this text is all that names the line of Python.
    """

    def __init__(self) -> None:
        """Make it. Raises OSError where there is no room, or no descriptor."""
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - as long as the sessions

    def redirect(self) -> None:
        """In the session: have it written there, if faulthandler is on."""
        if faulthandler.is_enabled():
            with contextlib.suppress(OSError, RuntimeError, ValueError):
                faulthandler.enable(file=self._file.fileno())

    def take(self) -> str:
        """In the keeper: what it has written. It is empty after that."""
        with contextlib.suppress(OSError):
            data = os.pread(self._file.fileno(), 1 << 16, 0)
            self._file.seek(0)
            self._file.truncate()
            return data.decode("utf-8", "replace")
        return ""
