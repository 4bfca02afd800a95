"""What runs in the user's process: find the watcher, or start it, and ask it to trace us."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # as in ``typing``, which takes as long to load as all else here
if TYPE_CHECKING:
    from _socket import socket

VARIABLE = "NECROPSY_WATCHER"
"""The environment variable with the path of the watcher's socket."""
TRACER, WATCHER = "necropsy-trace", "necropsy-watch"
"""What tracers of ours call themselves, and the watcher."""
GREETING = b"necropsy-1 "
"""What the watcher says first; its process id follows."""
MOST = 4096
"""Bytes of a message."""
_PATIENCE_S = 20.0
_YAMA = "/proc/sys/kernel/yama/ptrace_scope"
_LONGEST_PATH = 90
_START = (
    "import os, sys\n"
    "if os.fork(): os._exit(0)\n"
    "os.setsid()\n"
    "sys.path[:1] = []\n"
    "sys.path.append(sys.argv[3])\n"
    "from necropsy.watch import hub\n"
    "hub.main(int(sys.argv[1]), sys.argv[2])\n"
)


class Answer:
    """Whether a process is watched, and why not."""

    def __init__(self, ok: bool, why: str = "") -> None:
        self.ok, self.why = ok, why


def enable(*, show: bool = True, keep: bool = True) -> bool:
    """Have this process watched: if it dies, or a process that it starts from now on, a report says what killed it.

    ``show``: the report is written to stderr; ``keep``: it is kept for ``necropsy show``.

    Returns whether the process is watched. It never raises: where watching is not possible, the logger ``necropsy``
    says why, at the level *warning*. It may be called again at any time, also after ``fork``.
    """
    try:
        answer = register(show=show, keep=keep)
    except Exception as error:  # noqa: BLE001 - the program must not suffer from it
        answer = Answer(False, f"{type(error).__name__}: {error}")
    if not answer.ok:
        import logging

        logging.getLogger("necropsy").warning("this process is not watched: %s", answer.why)
    return answer.ok


def disable() -> bool:
    """Have this process watched no longer; the processes that it has started are.

    Returns false where it is still watched: ``necropsy run`` started it, or it was not possible. It never raises.
    """
    try:
        if sys.platform == "win32":
            from necropsy.watch import windows_client

            return windows_client.release()
        if not _tracer(os.getpid()):
            return True
        path = os.environ.get(VARIABLE)
        return path is not None and ask(path, b"release").startswith(b"yes")
    except Exception:  # noqa: BLE001 - as ``enable``
        return False


def register(pid: int | None = None, *, show: bool = True, keep: bool = True) -> Answer:
    """Have a process watched: this one, or another of the same user with the children that it has.

    Raises OSError where the watcher cannot be started, or does not answer.
    """
    if sys.platform == "win32" and pid is None:
        from necropsy.watch import windows_client

        why = windows_client.register(show=show, keep=keep)
        return Answer(not why, why)
    if sys.platform != "linux":
        return Answer(False, f"necropsy.enable() works on Linux and Windows only so far, not on {sys.platform}")
    target = pid or os.getpid()
    tracer = _tracer(target)
    path = os.environ.get(VARIABLE)
    if tracer:
        name = _name(tracer)
        if name != TRACER:
            return Answer(False, f"{name} (process {tracer}) traces it already, and a process has one tracer at most")
        if path is None:
            return Answer(ok=True)  # `necropsy run` will tell
    request = b" ".join((b"register", b"%d" % (pid or 0), b"%d" % show, b"%d" % keep))
    answer = b""
    if path is not None:
        try:
            answer = ask(path, request)
        except OSError:
            if tracer:
                return Answer(ok=True)
    if not answer:
        answer = ask(start(), request)
    word, _, why = answer.partition(b" ")
    return Answer(word == b"yes", why.decode("utf-8", "replace"))


def start() -> str:
    """Start a watcher, and leave its socket's path in the environment. Returns the path.

    Raises OSError if no process, folder or descriptor can be created.
    """
    import subprocess
    import tempfile
    from _socket import AF_UNIX, SOCK_SEQPACKET, socket

    parent = tempfile.gettempdir()
    folder = tempfile.mkdtemp(prefix="necropsy-", dir=parent if len(parent) < _LONGEST_PATH else "/tmp")  # noqa: S108
    path = f"{folder}/watcher"
    listener = socket(AF_UNIX, SOCK_SEQPACKET)
    try:
        listener.bind(path)
        listener.listen(64)
        own = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120
        words = [_python(), "-W", "ignore", "-c", _START, str(listener.fileno()), path, own]
        output = os.environ.get("NECROPSY_OUTPUT")
        variables = {**os.environ, **({"NECROPSY_OUTPUT": os.path.abspath(output)} if output else {})}  # noqa: PTH100
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(listener.fileno(),),
            env=variables,
        )
        process.wait()  # it has forked by then
    except BaseException:
        import shutil

        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        listener.close()
    os.environ[VARIABLE] = path
    return path


def ask(path: str, request: bytes) -> bytes:
    """The watcher's answer. Raises OSError where there is none."""
    connection = connect(path)
    try:
        connection.send(request)
        answer = connection.recv(MOST)
    finally:
        connection.close()
    if not answer:
        raise ConnectionResetError("the watcher has ended")
    return answer


def connect(path: str) -> socket:
    """A connection to the watcher, which may trace us from now on. Raises OSError where there is none."""
    from _socket import AF_UNIX, SOCK_SEQPACKET, socket

    connection = socket(AF_UNIX, SOCK_SEQPACKET)
    try:
        connection.settimeout(_PATIENCE_S)
        connection.connect(path)
        said = connection.recv(MOST)
        _allow(_greeted(said))
    except BaseException:
        connection.close()
        raise
    return connection


def _greeted(said: bytes) -> int:
    if not said.startswith(GREETING):
        raise ConnectionResetError("the watcher has ended, or is another version's")
    return int(said[len(GREETING) :])


def _allow(watcher: int) -> None:
    """Under Yama (Ubuntu) only ancestors may trace; this lets in the watcher and what it forks."""
    try:
        with open(_YAMA, "rb", buffering=0) as file:  # noqa: PTH123 - pathlib would have to be loaded
            if file.read(1) == b"0":
                return
    except OSError:
        return
    import ctypes

    ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(watcher), 0, 0, 0)  # PR_SET_PTRACER


def _tracer(pid: int) -> int:
    """Who traces the process; 0 for nobody."""
    try:
        with open(f"/proc/{pid}/status", "rb", buffering=0) as file:  # noqa: PTH123 - as above
            _, _, rest = file.read().partition(b"\nTracerPid:")
    except OSError:
        return 0
    return int(rest.split(None, 1)[0]) if rest else 0


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - as above
            return file.read().rstrip("\n")
    except OSError:
        return "a process out of sight"


def _python() -> str:
    """The interpreter; an embedding program (uWSGI) is not one."""
    if os.path.basename(sys.executable).startswith(("python", "pypy")):  # noqa: PTH119
        return sys.executable
    return os.path.join(sys.prefix, "bin", "python3")  # noqa: PTH118
