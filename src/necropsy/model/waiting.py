"""What a thread waited for: a system call, a lock and who holds it, a task of asyncio."""

from __future__ import annotations

from typing import Literal

from necropsy.model.base import Address, Noun


class Wait(Noun, frozen=True, kw_only=True):
    """What a thread waits for in the kernel: ``call`` is the system call (``futex``), ``on`` what it was given.

    ``on`` in words: ``the lock at 0x7f..``, ``pipe:[4711]``. ``owner`` is the id of the thread that holds the lock,
    where the lock itself says so (a mutex of glibc's does).
    """

    call: str
    on: str | None = None
    address: Address | None = None
    owner: int | None = None
    lock: str | None = None
    """Which lock of Python it is: ``threading.RLock``, ``threading.Lock``, ``multiprocessing.Lock``. ``Thread.join``
    where the thread waits for the end of another one, ``owner``."""
    lock_object: Address | None = None
    """Address of that Python object; ``address`` is that of its semaphore."""
    count: int | None = None
    """How often its owner has taken it; 0 where no thread of this process has."""
    owner_by: Literal["lock", "with", "join"] | None = None
    """How the owner is known: the lock keeps it; that thread runs the body of a ``with`` statement on the lock; or it
    is the thread whose end is waited for."""
    limited: bool | None = None
    """It waits no longer than a limit of time."""
    ended: bool = False
    """The call had ended when the thread was stopped: it was in it, and may have waited or not."""


class Coroutine(Noun, frozen=True, kw_only=True):
    """A coroutine that a task of asyncio runs, and the line on which it stands."""

    function: str | None = None
    source: str | None = None
    line: int | None = None


class Task(Noun, frozen=True, kw_only=True):
    """A task of asyncio. ``awaits``: its coroutines, the innermost first; each is awaited by the next one."""

    name: str | None = None
    awaits: tuple[Coroutine, ...] = ()
