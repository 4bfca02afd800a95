"""necropsy finds out what killed a Python process, shows the evidence, and proves it."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # as in ``typing``, which every start of `necropsy run` would have to load
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from necropsy.api import attach, diagnose, dumps, judge, latest, loads, open_dump, render, rules
    from necropsy.contain import Contained, Quarantined, TimedOut, contain, contained, raises_native
    from necropsy.crashed import Crashed
    from necropsy.fuzzing import FuzzResult, fuzz
    from necropsy.model import Document
    from necropsy.reducing import reduce
    from necropsy.running import RunResult, profile, run
    from necropsy.triaging import triage
    from necropsy.watch import disable, enable

__version__ = "0.1.0"

__all__ = [
    "Contained",
    "Crashed",
    "FuzzResult",
    "Quarantined",
    "RunResult",
    "TimedOut",
    "__version__",
    "attach",
    "check_dataset",
    "contain",
    "contained",
    "diagnose",
    "disable",
    "dumps",
    "enable",
    "fuzz",
    "judge",
    "latest",
    "loads",
    "open_dump",
    "profile",
    "raises_native",
    "reduce",
    "render",
    "rules",
    "run",
    "triage",
]

_MODULES = {
    **dict.fromkeys(
        ("attach", "diagnose", "dumps", "judge", "latest", "loads", "open_dump", "render", "rules"), "necropsy.api"
    ),
    **dict.fromkeys(("RunResult", "profile", "run"), "necropsy.running"),
    **dict.fromkeys(
        ("Contained", "Quarantined", "TimedOut", "contain", "contained", "raises_native"), "necropsy.contain"
    ),
    "Crashed": "necropsy.crashed",
    **dict.fromkeys(("disable", "enable"), "necropsy.watch.client"),
    **dict.fromkeys(("FuzzResult", "fuzz"), "necropsy.fuzzing"),
    "reduce": "necropsy.reducing",
    "triage": "necropsy.triaging",
    "load_ipython_extension": "necropsy.notebook.magics",
}
"""Where each public name is defined; the module is loaded when the name is first used."""


class _Package(type(sys)):  # type: ignore[misc] # types.ModuleType, without loading ``types``
    """Keeps the functions ``rules``, ``diagnose``, ``profile`` and ``triage`` when such modules are imported."""

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _MODULES or not isinstance(value, type(sys)):
            super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        """Pickle by name, as cloudpickle does with ordinary modules."""
        return __import__, (__name__,)


sys.modules[__name__].__class__ = _Package


if not TYPE_CHECKING:  # a type checker is to refuse names that do not exist

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(_MODULES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def check_dataset(
    dataset: Any,
    spec: Any = None,
    *,
    ranges: Mapping[str, tuple[float | None, float | None]] | None = None,
    limit: int | None = None,
) -> Document:
    """Walk over a dataset and report everything that is wrong with its elements.

    ``dataset``: a ``tf.data.Dataset``, a Keras ``Sequence`` or ``PyDataset``, a ``DataLoader`` of PyTorch, any iterable
    of arrays, dicts and tuples (nested as you like), or arrays that are cut along their first axis. It is walked over
    in this process, once: a generator is used up. Give a function that makes it, or ``"module:function"``, and the walk
    runs in a process of its own, so that a crash is a finding too and this process goes on.

    ``spec``: what every element should look like, as ``tf.data``'s ``element_spec``: a structure of ``tf.TensorSpec``,
    or of anything with ``dtype`` and ``shape``. Without it, the dataset's own is used, or one is inferred from the
    first 32 elements; it is in ``document.dataset.columns``.

    ``ranges``: the smallest and the largest allowed value by path, each may be None:
    ``{"[0]['image']": (0, 1), "[1]": (0, 9)}``. ``limit``: how many elements are checked at most.

    The document's ``findings`` are diagnoses, errors first, each with ``rule``, ``severity``, ``summary``, ``evidence``
    and ``fixes``.

    Raises:
        necropsy.errors.InputError: it is not a dataset, has no elements, never ends (give ``limit``), or a path in
            ``ranges`` is in none of its elements.
        necropsy.errors.NoInputError: there is no such module or function.

    """
    from necropsy import validation

    return validation.check_dataset(dataset, spec, ranges=ranges, limit=limit)
