"""The tasks of asyncio in words: which one ran, and which ones wait for it."""

from __future__ import annotations

from necropsy.model import Coroutine, Task, Thread
from necropsy.reports.terminal import file_name

_MOST_AWAITS = 4


def spelled(thread: Thread) -> list[str]:
    """``Task-3 ran child (app.py:8), which awaited leaf (app.py:4)``, then one line for each task that waits for it."""
    return [_spelled(task, "waits for it in" if place else "ran") for place, task in enumerate(thread.tasks)]


def _spelled(task: Task, does: str) -> str:
    """Outermost first; of a long chain its two ends."""
    chain = [_place(one) for one in reversed(task.awaits)]
    if len(chain) > _MOST_AWAITS:
        chain = [chain[0], f"{len(chain) - _MOST_AWAITS + 1} more", *chain[-_MOST_AWAITS + 2 :]]
    name = task.name or "A task"
    return f"{name} {does} " + ", which awaited ".join(chain) if chain else f"{name} {does.removesuffix(' in')}"


def _place(one: Coroutine) -> str:
    line = f":{one.line}" if one.line is not None else ""
    return f"{one.function or '?'} ({file_name(one.source or '?')}{line})"
