"""``--log pty``: fd 2 of the command is a pseudoterminal (or a pipe, as the real one is), and its bytes are passed on.

No byte is changed: the pseudoterminal is raw, so the real terminal does the one translation of line ends. The relay is
a process in a session of its own; the front holds our end too and replaces a relay that dies. The loop is in C
(``csrc/relay.c``); the one in Python below does the same where the C library is missing.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import struct
import termios
import time
import tty

from necropsy.capture.linux.supervise import c_library
from necropsy.capture.linux.supervise.descriptors import lift, pipe
from necropsy.capture.linux.supervise.shared_memory import Ring

TARGET_GONE = 3
"""Exit status: nobody reads the real stderr any more, and the command must learn of it."""
_CHUNK = 64 * 1024


def open_pair() -> tuple[int, int]:
    """(our end, the command's end): a pseudoterminal where fd 2 is a terminal, else a pipe.

    Raises OSError where no pseudoterminal or descriptor is left.
    """
    if not os.isatty(2):
        return pipe()
    ours, theirs = os.openpty()
    ours, theirs = lift(ours), lift(theirs)
    tty.setraw(theirs)
    copy_size(ours)
    return ours, theirs


def copy_size(ours: int) -> None:
    """The real terminal's size to the pseudoterminal."""
    with contextlib.suppress(OSError):
        fcntl.ioctl(ours, termios.TIOCSWINSZ, fcntl.ioctl(2, termios.TIOCGWINSZ, bytes(8)))


def serve(ours: int, ring: Ring) -> int:
    """Pass everything on until the command's end is closed everywhere; the exit status of the relay's process."""
    native = c_library.load()
    if native is not None:
        return int(native.relay_serve(ctypes.c_int(ours), ctypes.c_void_p(ring.address), ctypes.c_uint64(ring.size)))
    waiting = select.poll()
    waiting.register(ours, select.POLLIN)
    while True:
        waiting.poll()
        ring.mark_busy(True)
        try:
            data = os.read(ours, _CHUNK)
        except OSError:  # EIO: no process has the other end of the pseudoterminal
            data = b""
        if not data:
            ring.mark_busy(False)
            return 0
        ring.append(data)
        if not _write(data):
            return TARGET_GONE
        ring.mark_busy(False)


def _write(data: bytes) -> bool:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(2, rest) :]
        except BlockingIOError:  # noqa: PERF203 - the user's terminal may be non-blocking
            select.select([], [2], [])
        except OSError:
            return False
    return True


def is_drained(ours: int, ring: Ring) -> bool:
    """Everything that the command wrote has been passed on."""
    try:
        waiting = struct.unpack("i", fcntl.ioctl(ours, termios.FIONREAD, bytes(4)))[0]
    except OSError:
        waiting = 0
    return not waiting and not ring.busy


def settle(ring: Ring, most_s: float = 0.3) -> None:
    """Wait until the relay has been idle for a moment: the last words before a death are then in the ring."""
    deadline = time.monotonic() + most_s
    before = -1
    while time.monotonic() < deadline and (ring.busy or ring.total != before):
        before = ring.total
        time.sleep(0.03)
