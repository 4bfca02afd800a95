"""The commands under test start with every signal's default disposition, whoever started the suite.

``nohup`` ignores SIGHUP, and a shell without job control ignores SIGINT and SIGQUIT in what it starts with ``&``; an
ignored signal stays ignored across exec. A caught one becomes the default there, so the suite itself, which catches
them and does nothing, still outlives the hangup and the Ctrl-C that it was to outlive.
"""

from __future__ import annotations

import signal
import sys


def hand_on_defaults() -> None:
    """Catch each signal that was made ignored before this process began."""
    if sys.platform == "win32":
        return
    # Python itself ignores two, and `subprocess` puts them back.
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda _number, _frame: None)
