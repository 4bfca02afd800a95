"""What the command of a watched kernel runs first: it gets watched, and then becomes the kernel itself.

The process that Jupyter started stays the same, with its parent and its descriptors, so interrupt, restart and shutdown
work as for any kernel. Whatever goes wrong here, the kernel starts.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from necropsy.notebook import cell_log, kept_death
from necropsy.watch import client

_EXTENSION = Path(__file__).with_name("kernel_extension.py")
_IPYKERNEL = frozenset({"ipykernel_launcher", "ipykernel", "ipykernel.kernelapp"})
_ADDRESS_S = 3.0
"""How long the companion of the kernel before this one has to give up the address."""
_COMPANION = (
    "import os, sys\n"
    "if os.fork(): os._exit(0)\n"
    "os.setsid()\n"
    "sys.path[:1] = []\n"
    "sys.path.append(sys.argv[1])\n"
    "from necropsy.notebook import companion\n"
    "companion.main(sys.argv[2], *map(int, sys.argv[3:]))\n"
)


def main(command: Sequence[str]) -> NoReturn:
    """Become the kernel."""
    words = list(command)
    try:
        words = _watched(words)
    except Exception as error:  # noqa: BLE001 - the kernel must start
        _say(f"this kernel is not watched: {type(error).__name__}: {error}")
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it; the kernel's language may not
    try:
        os.execvp(words[0], words)  # noqa: S606 - the kernel's command, as Jupyter would start it
    except OSError as error:
        _say(f"cannot start the kernel: {words[0]}: {error.strerror}")
        os._exit(127)


def _watched(command: list[str]) -> list[str]:
    file = connection_file(command)
    if client.VARIABLE not in os.environ:
        client.start()  # it gets ready meanwhile
    if file is not None:
        with contextlib.suppress(OSError):
            _take_over(file)
    answer = client.register(show=False)
    if not answer.ok:
        _say(f"this kernel is not watched: {answer.why}")
        return command
    if file is None:
        return command
    cells = cell_log.create() if is_ipykernel(command) else -1
    given = (cells,) if cells >= 0 else ()
    own = str(Path(__file__).parent.parent.parent)
    words = [sys.executable, "-E", "-c", _COMPANION, own, str(file), *map(str, (os.getpid(), os.getppid(), cells))]
    starter = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=given)
    starter.wait()
    if cells < 0:
        return command
    os.set_inheritable(cells, True)
    os.environ["NECROPSY_NOTEBOOK"] = f"{cells}:{kept_death.path(file)}"
    return [*command, f"--IPKernelApp.exec_files={_EXTENSION}"]


def connection_file(command: Sequence[str]) -> Path | None:
    """The connection file that the command names, if any."""
    for word in command[1:]:
        for part in (word, word.partition("=")[2]):
            if part.endswith(".json"):
                with contextlib.suppress(OSError):
                    path = Path(part).absolute()
                    if b'"iopub_port"' in path.read_bytes()[:10000]:
                        return path
    return None


def is_ipykernel(command: Sequence[str]) -> bool:
    """IPython's own kernel, which takes its options."""
    return any(first == "-m" and second in _IPYKERNEL for first, second in itertools.pairwise(command))


def _take_over(file: Path) -> None:
    """Wait until the companion of the kernel that had this connection file before has given up its address.

    Raises OSError where there is none.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_ADDRESS_S)
        connection.connect(kept_death.meeting_place(file))
        connection.recv(1)


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"necropsy: {text}\n".encode(errors="backslashreplace"))
