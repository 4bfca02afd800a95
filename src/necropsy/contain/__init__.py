"""Run a function in a worker process, so that its crash is an exception of the caller and not its end."""

from necropsy.contain.batches import Quarantined
from necropsy.contain.calls import contain, contained, raises_native
from necropsy.contain.contained_pool import Contained
from necropsy.contain.process import TimedOut
from necropsy.crashed import Crashed

__all__ = ["Contained", "Crashed", "Quarantined", "TimedOut", "contain", "contained", "raises_native"]
