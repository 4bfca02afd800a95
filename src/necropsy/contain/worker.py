"""The worker process: it receives calls on a socket, runs them one at a time, and sends back what came of them."""

from __future__ import annotations

import contextlib
import faulthandler
import mmap
import os
import pickle
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

_F_SETSIG = 10
PROGRESS = struct.Struct("=Q")
_LONGEST_S = 1e6
_C_LIBRARY = "ucrtbase" if sys.platform == "win32" else None
_TEMPORARY = getattr(os, "O_TEMPORARY", 0) | getattr(os, "O_BINARY", 0)
"""Windows: others may delete it."""
_FUNCTIONS = 64
"""So many functions are kept, so that one that is called again need not be unpickled again."""


def die_with_the_caller(lifeline: int) -> None:
    """Have this process end when the caller closes its end of a pipe, or writes to it.

    The kernel sends a signal then, and the C library's ``_exit`` is its handler: a C function that holds the GIL does
    not delay it, and as it is no death by a signal nobody reports it.
    """
    try:
        import ctypes
        import fcntl
        import select

        libc = ctypes.CDLL(None)
        libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
        libc.signal(signal.SIGRTMAX, ctypes.cast(libc._exit, ctypes.c_void_p))  # noqa: SLF001 - its name in C
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGRTMAX})
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(lifeline, _F_SETSIG, signal.SIGRTMAX)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
        has_gone = bool(select.select([lifeline], [], [], 0)[0])  # before the kernel was asked
    except (ImportError, OSError, AttributeError):  # not Linux
        import threading

        def wait() -> None:
            os.read(lifeline, 1)
            os._exit(1)

        threading.Thread(target=wait, daemon=True).start()
        has_gone = False
    if has_gone:
        os._exit(1)


def _watched() -> str | None:
    """Ask the watcher to trace this process; why it does not."""
    from necropsy.watch import client

    try:
        answer = client.register(show=False)
    except Exception as error:  # noqa: BLE001 - the call is to be made, watched or not
        return f"{type(error).__name__}: {error}"
    return None if answer.ok else answer.why


def _seed() -> None:
    """After a fork: Python seeds ``random`` itself, but NumPy's generator would give each worker the same numbers."""
    numbers = sys.modules.get("numpy.random")
    if numbers is not None:
        with contextlib.suppress(Exception):  # what a stand-in for NumPy does
            numbers.seed()


class Worker:
    """The loop over calls."""

    def __init__(self, connection: socket.socket, progress: mmap.mmap, stacks: int | None = None) -> None:
        """``progress``: shared with the caller, the place of the record in its batch.

        ``stacks``: a file into which the stacks are written at the end of the time for a call; None: somebody else
        reads them.
        """
        from necropsy.contain import messages

        self.messages, self.channel, self.progress = messages, messages.MessageChannel(connection), progress
        self.stacks = stacks
        self.functions: dict[bytes, Callable[..., Any]] = {}
        try:
            import ctypes

            self.flush_c: Callable[[None], object] = ctypes.CDLL(_C_LIBRARY).fflush
        except (ImportError, OSError, AttributeError):
            self.flush_c = lambda _: None

    def serve(self) -> NoReturn:
        """Run calls until the caller closes the connection."""
        while True:
            try:
                message = self.channel.take()
            except EOFError:
                self.flush()
                os._exit(0)
            try:
                # The arguments are named nowhere: their memory is free when the answer is sent.
                answer = self.answer(*self.messages.loads(message))
            except SystemExit:
                raise
            except BaseException as error:  # noqa: BLE001 - it is the caller's to handle
                answer = ("raised", *self.portable(error))
            del message
            if self.stacks is not None:
                faulthandler.cancel_dump_traceback_later()
            self.flush()
            self.send(answer)
            del answer

    def answer(  # noqa: PLR0917 - as they come in a message
        self,
        definition: bytes,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        memory: int | None,
        mode: str,
        timeout: float | None = None,
    ) -> tuple[Any, ...]:
        """What the call gave; the values of a generator function (``values``) are sent from here, one by one."""
        self.expect_end(timeout)
        function = self.resolved(definition)
        with limited(memory) if memory is not None else contextlib.nullcontext():
            if mode == "batch":
                return ("batch", self.batch(function, args[0]))
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
                    self.expect_end(timeout)
                return ("ended",)
        return ("returned", result)

    def expect_end(self, timeout: float | None) -> None:
        """Have the stacks written when the time is up, even while C code holds the GIL."""
        if timeout is not None and self.stacks is not None:
            faulthandler.dump_traceback_later(min(timeout, _LONGEST_S), file=self.stacks)

    def resolved(self, definition: bytes) -> Callable[..., Any]:
        """The function, unpickled once."""
        function = self.functions.get(definition)
        if function is None:
            from necropsy.contain.functions import resolve

            function = resolve(definition)
            if len(self.functions) >= _FUNCTIONS:
                self.functions.clear()
            self.functions[definition] = function
        return function

    def batch(
        self, function: Callable[[Any], Any], records: list[Any]
    ) -> tuple[list[Any], dict[int, tuple[BaseException, str]]]:
        """The results of all records, and by place the exceptions with the texts of their tracebacks."""
        results: list[Any] = []
        errors: dict[int, tuple[BaseException, str]] = {}
        note, progress = PROGRESS.pack_into, self.progress
        for place, record in enumerate(records):
            note(progress, 0, place)
            try:
                results.append(function(record))
            except Exception as error:  # noqa: BLE001 - it is the caller's to handle
                results.append(None)
                errors[place] = self.portable(error)
        return results, errors

    def send(self, answer: tuple[Any, ...]) -> bool:
        """Send the answer, or a ``TypeError`` in the place of what cannot be pickled: false where that is all of it."""
        try:
            data = self.messages.packed(answer)
        except Exception as error:  # noqa: BLE001 - whatever a __reduce__ raises
            if answer[0] == "batch":
                self._without_unpicklable(*answer[1])
                return self.send(answer)
            self.channel.post(self.messages.packed(("raised", _refusal(answer[1], error), "")))
            return False
        self.channel.post(data)
        return True

    def _without_unpicklable(self, results: list[Any], errors: dict[int, tuple[BaseException, str]]) -> None:
        for place, result in enumerate(results):
            try:
                self.messages.packed(result)
            except Exception as error:  # noqa: BLE001, PERF203 - whatever a __reduce__ raises
                results[place], errors[place] = None, (_refusal(result, error), "")

    def portable(self, error: BaseException) -> tuple[BaseException, str]:
        """The exception with the text of its traceback; a ``RuntimeError`` where it would not survive pickling."""
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        try:
            again = pickle.loads(self.channel.dumps(error))  # noqa: S301 - our own
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


def _refusal(result: Any, error: Exception) -> TypeError:
    what = type(result).__name__
    return TypeError(f"the result, a {what}, could not be sent back: it cannot be pickled: {error}")


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


def main(handles: Sequence[int], functions: Sequence[bytes] = ()) -> NoReturn:
    """Serve the caller at the other end of a socket until it closes it.

    ``handles``: the socket, a pipe that the caller closes when it ends, the file with the place in a batch, the files
    that become stdout and stderr, and one for faulthandler; ``functions``: to be loaded before the worker says that it
    is ready.
    """
    handle, lifeline, shared, stdout, stderr, faults = handles
    try:
        die_with_the_caller(lifeline)
        for ours, theirs in ((stdout, 1), (stderr, 2)):
            os.dup2(ours, theirs)
            os.close(ours)
        progress = mmap.mmap(shared, PROGRESS.size)
        os.close(shared)
        serve(socket.socket(fileno=handle), progress, functions=functions, faults=faults, unwatched=_watched())
    except ConnectionError:  # the caller has gone
        os._exit(0)


def serve(
    connection: socket.socket,
    progress: mmap.mmap,
    *,
    functions: Sequence[bytes],
    faults: int | str,
    unwatched: str | None,
) -> NoReturn:
    """``faults``: the file for faulthandler, or where it is; ``unwatched``: why nobody traces this process.

    Raises ConnectionError where the caller has gone.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=connection.close)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr] # it is no other class's yet
    _seed()
    stacks = None
    if unwatched is not None:
        # Nobody else reads the stacks.
        stacks = faults if isinstance(faults, int) else os.open(faults, os.O_WRONLY | os.O_APPEND | _TEMPORARY)
        faulthandler.enable(file=stacks)
    elif isinstance(faults, int):
        os.close(faults)
    worker = Worker(connection, progress, stacks)
    for function in functions:
        with contextlib.suppress(Exception):  # its call will tell
            worker.resolved(function)
    worker.send((os.getpid(), os.environ.get("NECROPSY_WATCHER"), unwatched))
    worker.serve()
