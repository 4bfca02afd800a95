"""``necropsy enable``: a process that runs already is watched from now on."""

from __future__ import annotations

import sys

import click

from necropsy.console import say
from necropsy.errors import AttachRefusedError, NecropsyError, NoInputError


@click.command(short_help="Watch a process that runs already; if it dies, say what killed it.")
@click.argument("pid", type=click.IntRange(min=1))
def enable(pid: int) -> None:
    """Watch the process PID from now on, with the children that it has and those that it starts.

    The process runs on as before. If it or one of them dies natively, a report is written to its stderr and kept for
    `necropsy show`. The command returns at once. In a program of your own, call necropsy.enable() instead.
    """
    if sys.platform != "linux":
        raise NecropsyError(f"`necropsy enable` does not work on {sys.platform} yet")
    from necropsy import watch
    from necropsy.capture.linux.supervise.traced_processes import is_dead, status_of

    status = status_of(pid)
    if not status or is_dead(pid):
        raise NoInputError(f"there is no process {pid}")
    if status.get("Tgid") != str(pid):
        raise NoInputError(f"{pid} is a thread of process {status.get('Tgid')}")
    try:
        answer = watch.register(pid)
    except OSError as error:
        raise NecropsyError(f"the watcher cannot be started: {error}") from error
    if not answer.ok:
        raise AttachRefusedError(f"process {pid} cannot be watched: {answer.why}")
    say(f"necropsy: process {pid} is watched; if it dies, its stderr and `necropsy show` say why")
