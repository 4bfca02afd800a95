"""necropsy finds out what killed a Python process, shows the evidence, and proves it."""

from __future__ import annotations

TYPE_CHECKING = False  # as in ``typing``, which every start of `necropsy run` would have to load
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from necropsy.model import Document

__version__ = "0.1.0"

__all__ = ["__version__", "check_dataset"]


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
