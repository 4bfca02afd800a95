"""Ctrl-C before there is anything to clean up ends this process as any other, where Python would print a traceback."""

from __future__ import annotations

import signal
import sys

_changed = False


def end_at_once() -> None:
    """Die of SIGINT from here on, so that a shell sees what ended us; where it is ignored it stays so.

    On Windows nothing changes: there Ctrl-C is no signal that kills.
    """
    global _changed  # noqa: PLW0603 - as global as the disposition of a signal
    if sys.platform != "win32" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        _changed = True


def raise_an_exception() -> None:
    """From here on there is something to clean up: KeyboardInterrupt again."""
    global _changed  # noqa: PLW0603 - see above
    if _changed:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _changed = False
