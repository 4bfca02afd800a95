"""Run a function in a worker process, so that its crash is an exception of the caller and not its end."""

from necropsy.contain.calls import contain, contained
from necropsy.contain.process import TimedOut
from necropsy.crashed import Crashed

__all__ = ["Crashed", "TimedOut", "contain", "contained"]
