"""``enable()`` on Windows: a process of its own attaches to this one as a debugger. What runs in the user's process."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys

_START = (
    "import sys\n"
    "sys.path[:] = [one for one in sys.path if one]\n"
    "sys.path.append(sys.argv[1])\n"
    "from necropsy.watch import attached_debugger\n"
    "attached_debugger.main(int(sys.argv[2]), show=sys.argv[3] == '1', keep=sys.argv[4] == '1')\n"
)
RELEASE = b"release\n"
YES = b"yes\n"
_PATIENCE_S = 20.0

_debugger: subprocess.Popen[bytes] | None = None


def register(*, show: bool, keep: bool) -> str:
    """Have this process debugged; why that is not possible, or nothing. Raises OSError without a process."""
    global _debugger  # noqa: PLW0603 - a process has one
    if _debugger is not None and _debugger.poll() is None:
        return ""
    if _is_debugged():
        return "a debugger is attached already, and a process has one at most"
    own = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120
    words = [sys.executable, "-W", "ignore", "-c", _START, own, str(os.getpid()), str(int(show)), str(int(keep))]
    hidden = getattr(subprocess, "CREATE_NO_WINDOW", 0)
    # Its stderr is ours, for the report.
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, creationflags=hidden)
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    if (said := process.stdout.readline()) != YES:
        with process:
            return said.decode("utf-8", "replace").strip() or "the debugger did not start"
    if _debugger is None:
        atexit.register(_leave)
    _debugger = process
    return ""


def release() -> bool:
    """Have it detach; whether it has. Raises OSError where it has gone."""
    global _debugger
    process, _debugger = _debugger, None
    if process is None or process.poll() is not None:
        return not _is_debugged()
    said, _ = process.communicate(RELEASE, _PATIENCE_S)
    return said == YES


def _is_debugged() -> bool:
    import ctypes

    if sys.platform == "win32":
        return bool(ctypes.windll.kernel32.IsDebuggerPresent())
    return False


def _leave() -> None:
    """At exit: it outlives this process, which does not wait for it."""
    if _debugger is not None:
        _debugger.returncode = 0
