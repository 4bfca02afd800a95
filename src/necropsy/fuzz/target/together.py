"""Makes calls by several threads at once, again and again for a while: in one process they share the op's kernel."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any, Dict, List, Sequence, Tuple

from necropsy.fuzz.target import guarding

Made = Tuple[Any, Dict[str, Any]]
"""What is called, and its arguments."""


def made(calls: Sequence[Sequence[str]], names: Dict[str, Any], guard: guarding.Guard) -> List[Made]:
    """The inputs of calls, each of which is two texts of Python.

    Raises:
        Exception: what making them raises.

    """
    found: List[Made] = []
    with guard.inputs:
        for function, arguments in calls:
            given = eval("dict(%s)" % arguments, names)
            if guard.is_used and "__separate__" in names:
                given = names["__separate__"](given)
            found.append((eval(function, names), given))
    return found


def make(calls: List[Made], guard: guarding.Guard, threads: int, seconds: float) -> None:
    """Make the calls for ``seconds``; each thread begins with another one. Exceptions that calls raise are ignored."""
    until = [0.0]

    def begin() -> None:
        until[0] = time.monotonic() + seconds

    start = threading.Barrier(threads, begin)

    def work(first: int) -> None:
        mine = calls[first:] + calls[:first]
        start.wait()
        while time.monotonic() < until[0]:
            for function, given in mine:
                with contextlib.suppress(Exception):  # what was accepted alone may be refused beside others
                    function(**given)

    several = [threading.Thread(target=work, args=(at % len(calls),)) for at in range(threads)]
    with guard.call:  # one for all: the guard is armed for the whole process
        for one in several:
            one.start()
        for one in several:
            one.join()
