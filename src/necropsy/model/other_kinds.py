"""What only documents of other kinds than a run's hold: it is loaded where such a document is made or read.

A report of a crash needs none of it, and loading it would delay the start of each run. ``necropsy.model`` has these
names like all others. In the model, a field is declared as ``other_kinds.Triage``: msgspec resolves that when it reads
a document.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from necropsy.model.dataset import Dataset
    from necropsy.model.fuzz import Fuzzing
    from necropsy.model.profile import (
        Comparison,
        FailedCheck,
        HeapUse,
        ProfileMark,
        ResourceUse,
        SmallestLimit,
        StackUse,
        TreeUse,
    )
    from necropsy.model.reduction import Reduction
    from necropsy.model.triage import Triage
else:
    import importlib

    _MODULES = ("profile", "reduction", "fuzz", "triage", "dataset")

    def __getattr__(name: str) -> object:
        """What one of these modules has by this name."""
        for module in () if name.startswith("_") else _MODULES:
            found = getattr(importlib.import_module(f"necropsy.model.{module}"), name, None)
            if found is not None:
                return globals().setdefault(name, found)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Comparison",
    "Dataset",
    "FailedCheck",
    "Fuzzing",
    "HeapUse",
    "ProfileMark",
    "Reduction",
    "ResourceUse",
    "SmallestLimit",
    "StackUse",
    "TreeUse",
    "Triage",
]
