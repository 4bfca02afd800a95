"""The forked copy of the kernel that runs one cell: it has every variable, and nothing that talks to the front end.

The fork has one thread, the one that forked. The kernel's sockets and its history belong to threads of the parent, so
everything that would use them is replaced here before the cell runs; what the cell displays goes to the parent.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import os
import pickle
import sys
import traceback
from collections.abc import Iterable
from multiprocessing.connection import Connection
from typing import Any

from necropsy.contain.worker import die_with_the_caller
from necropsy.watch import client

NO_VALUE = "the cell did not set it"


def become(
    shell: Any, cell: str, names: Iterable[str], connection: Connection[Any, Any], handles: tuple[int, int, int]
) -> None:
    """Run the cell in this forked child, send what came of it, and end. It never returns.

    ``handles``: a pipe whose other end only the kernel has, and the files for stdout and stderr.
    """
    lifeline, *files = handles
    try:
        os.setpgid(0, 0)
        die_with_the_caller(lifeline)
        _own_streams(files)
        watched = _watched()
        faulthandler.disable()  # the kernel's, which writes to the terminal of the server
        if not watched.ok:
            connection.send_bytes(pickle.dumps(("unwatched", watched.why)))
        shown: list[str] = []
        _detach(shell, connection, shown)
        known = dict(shell.user_ns)
        result = shell.run_cell(cell, store_history=False)
        error = result.error_before_exec or result.error_in_exec
        answer: tuple[Any, ...]
        if error is not None:
            answer = ("raised", *_portable(error), shown)
        else:
            answer = ("done", {name: _value(shell.user_ns, name, known) for name in names})
        _flush()
        connection.send_bytes(pickle.dumps(answer))
        os._exit(0)
    except BaseException:  # noqa: BLE001 - a forked copy must not go on as a second kernel
        traceback.print_exc()
    finally:
        _flush()
        os._exit(1)


def _watched() -> client.Answer:
    try:
        return client.register(show=False)
    except OSError as error:
        return client.Answer(False, str(error))


def _own_streams(files: list[int]) -> None:
    """Standard input is empty; what is written goes to the files that the parent copies from."""
    empty = os.open(os.devnull, os.O_RDONLY)
    for source, target in zip((empty, *files), range(3), strict=True):
        os.dup2(source, target)
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(os.fdopen(0, "rb", closefd=False), "utf-8")  # type: ignore[misc] # it is Final for type checkers
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = io.TextIOWrapper(os.fdopen(number, "wb", closefd=False), "utf-8", "replace", line_buffering=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _detach(shell: Any, connection: Connection[Any, Any], shown: list[str]) -> None:
    """``shown``: gets the lines of a traceback as IPython formats it."""

    def send(*_: Any, **__: Any) -> None:
        """In place of the sockets to the front end, which belong to threads that this process does not have."""

    def show_traceback(_: Any, __: Any, lines: Any) -> None:
        shown[:] = map(str, lines)

    def publish(data: Any, metadata: Any = None, **more: Any) -> None:
        _flush()
        chosen = {name: more[name] for name in ("transient", "update") if more.get(name)}
        connection.send_bytes(pickle.dumps(("display", data, metadata or {}, chosen)))

    def clear(wait: bool = False) -> None:
        connection.send_bytes(pickle.dumps(("clear", wait)))

    def show(data: dict[str, Any], metadata: dict[str, Any] | None = None) -> None:
        publish(data, metadata)

    kernel = getattr(shell, "kernel", None)
    if kernel is not None:
        kernel.session.send = send
        kernel._allow_stdin = False  # noqa: SLF001 - input() then says that it is not available
    shell.display_pub.publish = publish
    shell.display_pub.clear_output = clear
    shell.displayhook.write_output_prompt = lambda: None
    shell.displayhook.write_format_data = show
    shell.displayhook.finish_displayhook = _flush
    shell._showtraceback = show_traceback  # noqa: SLF001
    shell.history_manager.enabled = False


def _portable(error: BaseException) -> tuple[bytes, str, str]:
    """The exception for the parent: pickled where that works (else empty), the name of its class, and its text."""
    try:
        data = pickle.dumps(error, protocol=5)
        again = type(pickle.loads(data)) is type(error)  # noqa: S301 - our own
    except Exception:  # noqa: BLE001 - whatever its __reduce__ or __init__ raises
        data, again = b"", False
    return data if again else b"", type(error).__name__, str(error)


def _value(variables: dict[str, Any], name: str, known: dict[str, Any]) -> bytes | str:
    """A variable, pickled; a text that says why it cannot be."""
    if name not in variables:
        return NO_VALUE
    try:
        return _dumps(variables[name], known)
    except Exception as error:  # noqa: BLE001 - whatever a __reduce__ raises
        return f"it cannot be pickled: {error}"


def _dumps(value: Any, known: dict[str, Any]) -> bytes:
    """The value pickled: what the notebook had before goes by name, what the cell defined by value."""
    from cloudpickle import CloudPickler

    class Pickler(CloudPickler):  # type: ignore[misc] # it has no annotations
        def reducer_override(self, obj: Any) -> Any:
            if getattr(obj, "__module__", None) == "__main__":
                name = getattr(obj, "__qualname__", None)
                if isinstance(name, str) and known.get(name) is obj:
                    return _of_the_notebook, (name,)
            return super().reducer_override(obj)

    file = io.BytesIO()
    Pickler(file, protocol=5).dump(value)
    return file.getvalue()


def _of_the_notebook(name: str) -> Any:
    """A function or class that the notebook had before the cell ran."""
    return getattr(sys.modules["__main__"], name)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    with contextlib.suppress(Exception):
        import ctypes

        ctypes.CDLL(None).fflush(None)
