"""Run a function in a worker process, so that its crash is an exception of the caller and not its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from necropsy.contain.batches import Quarantined
    from necropsy.contain.calls import contain, contained, raises_native
    from necropsy.contain.contained_pool import Contained
    from necropsy.contain.process import TimedOut
    from necropsy.crashed import Crashed

__all__ = ["Contained", "Crashed", "Quarantined", "TimedOut", "contain", "contained", "raises_native"]

_MODULES = {
    "Contained": "necropsy.contain.contained_pool",
    "Crashed": "necropsy.crashed",
    "Quarantined": "necropsy.contain.batches",
    "TimedOut": "necropsy.contain.process",
    **dict.fromkeys(("contain", "contained", "raises_native"), "necropsy.contain.calls"),
}
"""Loaded when a name is first used: a worker needs none of them."""

if not TYPE_CHECKING:  # a type checker is to refuse names that do not exist

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(_MODULES[name]), name)
