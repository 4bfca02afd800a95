"""The worker process: it receives calls on a socket, runs them one at a time, and sends back what came of them.

It is started as a script, in the interpreter of the caller, under the supervisor of ``necropsy run``. Until the first
message has set ``sys.path``, nothing but the standard library can be imported.
"""

from __future__ import annotations

import contextlib
import importlib
import mmap
import os
import pickle
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from necropsy.contain import wire

_F_SETSIG = 10
_LENGTH = struct.Struct("!Q")
_PROGRESS = struct.Struct("=Q")
_FUNCTIONS = 64
"""So many functions are kept, so that one that is called again need not be unpickled again."""


def die_with_the_caller(lifeline: int) -> None:
    """Have this process killed when the caller closes its end of a pipe, even where a C function holds the GIL."""
    import fcntl
    import select

    try:
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(lifeline, _F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    except (OSError, AttributeError):  # not Linux
        import threading

        def wait() -> None:
            os.read(lifeline, 1)
            os._exit(1)

        threading.Thread(target=wait, daemon=True).start()
    if select.select([lifeline], [], [], 0)[0]:
        os._exit(1)  # the caller had gone before the kernel was asked


def _tracer() -> int:
    """The process that traces this one, or 0."""
    with contextlib.suppress(OSError, StopIteration, ValueError), open("/proc/self/status", encoding="ascii") as file:
        return int(next(line for line in file if line.startswith("TracerPid")).split()[1])
    return 0


def _prepare(connection: socket.socket) -> None:
    """Take over what the caller's first message says: ``sys.path``, ``sys.argv``, and modules to import."""
    with connection.makefile("rb", buffering=0) as file:
        size = _LENGTH.unpack(_exactly(file.read, _LENGTH.size))[0]
        path, argv, imports = pickle.loads(_exactly(file.read, size))  # noqa: S301 - from our own parent
    sys.path[:] = path
    sys.argv[:] = argv
    for name in imports:
        with contextlib.suppress(Exception):  # the call that needs it will tell
            importlib.import_module(name)


def _exactly(read: Callable[[int], bytes | None], size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = read(size - len(data))
        if not part:
            os._exit(0)
        data += part
    return data


class Worker:
    """The loop over calls."""

    def __init__(self, channel: wire.Channel, progress: mmap.mmap) -> None:
        """``progress``: shared with the caller, the place of the record in its batch."""
        self.channel, self.progress = channel, progress
        self.functions: dict[bytes, Callable[..., Any]] = {}
        try:
            import ctypes

            self.flush_c: Callable[[None], object] = ctypes.CDLL(None).fflush
        except (ImportError, OSError, AttributeError):
            self.flush_c = lambda _: None

    def serve(self) -> None:
        """Run calls until the caller closes the connection."""
        while True:
            try:
                message = self.channel.receive()
            except EOFError:
                self.flush()
                os._exit(0)
            try:
                call = self.channel.loads(message)
                answer = self.answer(*call)
            except SystemExit:
                raise
            except BaseException as error:  # noqa: BLE001 - it is the caller's to handle
                answer = ("raised", *self.portable(error))
            self.flush()
            self.send(answer)
            del answer

    def answer(
        self, definition: bytes, args: tuple[Any, ...], kwargs: dict[str, Any], memory: int | None, mode: str
    ) -> tuple[Any, ...]:
        """What the call gave; the values of a generator function (``values``) are sent from here, one by one."""
        function = self.functions.get(definition)
        if function is None:
            from necropsy.contain.functions import resolve

            function = resolve(definition)
            if len(self.functions) >= _FUNCTIONS:
                self.functions.clear()
            self.functions[definition] = function
        with limited(memory) if memory is not None else contextlib.nullcontext():
            if mode == "batch":
                return ("returned", self.batch(function, args[0]))
            result = function(*args, **kwargs)
            if hasattr(result, "__await__") and hasattr(result, "cr_frame"):
                import asyncio

                result = asyncio.run(result)
            elif mode == "values":
                for value in result:
                    self.flush()
                    if not self.send(("item", value)):
                        result.close()
                        return ("ended",)
                return ("ended",)
        return ("returned", result)

    def batch(
        self, function: Callable[[Any], Any], records: list[Any]
    ) -> tuple[list[Any], dict[int, tuple[BaseException, str]]]:
        """The results of all records, and by place the exceptions with the texts of their tracebacks."""
        results: list[Any] = []
        errors: dict[int, tuple[BaseException, str]] = {}
        note, progress = _PROGRESS.pack_into, self.progress
        for place, record in enumerate(records):
            note(progress, 0, place)
            try:
                results.append(function(record))
            except Exception as error:  # noqa: BLE001 - it is the caller's to handle
                results.append(None)
                errors[place] = self.portable(error)
        try:
            self.channel.dumps(results)
        except Exception:  # noqa: BLE001 - whatever a __reduce__ raises
            for place, result in enumerate(results):
                try:
                    self.channel.dumps(result)
                except Exception as error:  # noqa: BLE001, PERF203
                    what = (
                        f"the result, a {type(result).__name__}, could not be sent back: it cannot be pickled: {error}"
                    )
                    results[place], errors[place] = None, (TypeError(what), "")
        return results, errors

    def send(self, answer: tuple[Any, ...]) -> bool:
        """Send the answer, or a ``TypeError`` in its place where it cannot be pickled: false then."""
        try:
            data = self.channel.dumps(answer)
        except Exception as error:  # noqa: BLE001 - whatever a __reduce__ raises
            what = type(answer[1]).__name__
            refusal = TypeError(f"the result, a {what}, could not be sent back: it cannot be pickled: {error}")
            self.channel.send(self.channel.dumps(("raised", refusal, "")))
            return False
        self.channel.send(data)
        return True

    def portable(self, error: BaseException) -> tuple[BaseException, str]:
        """The exception with the text of its traceback; a ``RuntimeError`` where it would not survive pickling."""
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        try:
            again = self.channel.loads(self.channel.dumps(error))
        except Exception:  # noqa: BLE001 - whatever its __reduce__ or __init__ raises
            again = None
        if type(again) is not type(error):
            return RuntimeError(f"{type(error).__name__}: {error}"), text
        return error, text

    def flush(self) -> None:
        """Bring what Python and C still hold to the files that the caller reads."""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        self.flush_c(None)


@contextlib.contextmanager
def limited(memory: int) -> Iterator[None]:
    """Allow ``memory`` bytes of address space more than this process has now."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", encoding="ascii") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    most = now + memory if hard == resource.RLIM_INFINITY else min(now + memory, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def main() -> None:
    """``worker.py SOCKET LIFELINE REPORT PROGRESS``: file descriptors that were inherited."""
    handle, lifeline, report, shared = (int(word) for word in sys.argv[1:])
    os.set_inheritable(handle, False)
    os.set_inheritable(lifeline, False)
    with contextlib.suppress(OSError):
        os.close(report)  # the supervisor's
    die_with_the_caller(lifeline)
    connection = socket.socket(fileno=handle)
    progress = mmap.mmap(shared, _PROGRESS.size)
    os.close(shared)
    os.register_at_fork(after_in_child=lambda: os.close(handle))
    _prepare(connection)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    from necropsy.contain.wire import Channel

    channel = Channel(connection)
    channel.send(channel.dumps((os.getpid(), _tracer())))
    Worker(channel, progress).serve()


if __name__ == "__main__":
    try:
        main()
    except ConnectionError:  # the caller has gone
        os._exit(0)
