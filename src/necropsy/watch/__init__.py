"""The watcher: a process that traces those that ask for it, and reports when one of them dies.

There is one for a process and all that it starts. The first ``enable()`` starts it, by a double fork and exec of the
same interpreter; its socket's path is left in the environment variable ``NECROPSY_WATCHER``, where the children find
it. It ends a moment after the last process that it traces. For each that registers it forks a tracer, which follows
that process and its children (``registered_tracer``), and outlives the watcher. Nothing depends on any of them: where
they are killed, the kernel lets go, and the programs run on.

On Windows there is no watcher: ``enable()`` starts a debugger for the calling process alone (``windows_client``,
``attached_debugger``), and of the others only ``disable()`` works.

For the command line, notebooks, pytest and ``contain``:

``enable(show=True, keep=True)``
    Have this process watched, and what it starts from now on. True where it is. Never raises. ``show``: reports are
    written to its stderr; ``keep``: and kept in the folder of reports. It holds for its children as well, except for
    those that call ``enable`` with their own wishes. After ``exec`` the process is still watched: call it, then
    execute what is to be watched, which need not have necropsy.
``register(pid=None, show=True, keep=True)``
    The same for another process, with ``Answer.why`` where it is not possible.
``disable()``
    This process is traced no longer; the children that it has are.
``report(pid, timeout)``
    The ``Document`` on the death of a watched process, by whoever has the variable; it waits until the process has
    ended and the report is written. None where it ended well, is not watched, or the time is up. The last 32 reports
    are remembered.
``start()``
    Start the watcher without registering: it gets ready while the caller does something else.

Only the standard library is loaded here, as little of it as possible: ``enable`` runs in the user's process.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from necropsy.watch.asking import report
    from necropsy.watch.client import Answer, disable, enable, register, start

__all__ = ["Answer", "disable", "enable", "register", "report", "start"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("necropsy.watch.asking" if name == "report" else "necropsy.watch.client"), name)
