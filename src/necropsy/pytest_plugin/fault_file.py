"""Where faulthandler writes in a session: not to the terminal, between the results of the tests.

Where the session is traced, the report says more. Where it is not, this text is all that names the line of Python.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import tempfile


class FaultFile:
    """A file without a name that the keeper and the sessions share."""

    def __init__(self) -> None:
        """Make it.

        Raises:
            OSError: there is no room, or no descriptor.

        """
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
