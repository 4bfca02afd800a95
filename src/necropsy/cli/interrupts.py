"""Ctrl-C before there is anything to clean up ends this process as any other, where Python would print a traceback.

It is among the first things loaded, so it loads nothing itself: ``signal`` alone takes milliseconds.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found] # typeshed knows `signal` only, which is written in Python
import sys

_SCRIPTS = ("/necropsy", "/necropsy-python", "/necropsy/__main__.py")
"""What ``sys.argv[0]`` ends with where this process is necropsy's own; -m has not filled it in when it is asked."""

_changed = False


def is_own_process() -> bool:
    """Whether this process was started as necropsy, and is no program that has imported it."""
    return sys.platform != "win32" and sys.argv[0].endswith(_SCRIPTS)


def end_at_once() -> None:
    """Die of SIGINT from here on, so that a shell sees what ended us; where it is ignored it stays so."""
    global _changed  # noqa: PLW0603 - as global as the disposition of a signal
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
        _changed = True


def let_through() -> None:
    """Unblock SIGINT, which the launcher has blocked; one that was sent meanwhile takes its effect now."""
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, {_signal.SIGINT})


def raise_an_exception() -> None:
    """From here on there is something to clean up: KeyboardInterrupt again."""
    global _changed  # noqa: PLW0603 - see above
    if _changed:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)
        _changed = False
