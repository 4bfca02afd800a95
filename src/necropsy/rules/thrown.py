"""What libstdc++ says before it gives up, from the log or, where nobody read that, from the exception itself."""

from __future__ import annotations

from necropsy.model import Crash, Message
from necropsy.predicates import calls, messages
from necropsy.rules.aborts import aborted
from necropsy.rules.reporters import TERMINATE


def uncaught(crash: Crash) -> tuple[Message, ...]:
    """The messages of ``std::terminate``; without one, the exception that was found in memory while terminate ran.

    An exception in memory alone may be one that was caught long ago: terminate must stand on the stack.
    """
    found = messages(crash, "cpp-terminate")
    thrown = crash.cpp_exception
    if found or thrown is None or thrown.type is None or not aborted(crash):
        return found
    if not calls(crash, TERMINATE, first=16, claim="C++ called std::terminate"):
        return ()
    fields = {"type": thrown.type} | ({"what": thrown.what} if thrown.what else {})
    text = f"{thrown.type}: {thrown.what}" if thrown.what else thrown.type
    return (Message(kind="cpp-terminate", text=text, where=thrown.where, fields=fields),)
