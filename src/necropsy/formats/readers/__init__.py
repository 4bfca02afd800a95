"""The readers of texts that say how a process died, one kind a file: each module has its ``READER`` or ``READERS``."""

from __future__ import annotations

import importlib
import pkgutil
from functools import lru_cache

from necropsy.formats.text_reports import TextReader


@lru_cache(maxsize=1)
def readers() -> tuple[TextReader, ...]:
    """All readers, by the names of their modules."""
    found: list[TextReader] = []
    for info in sorted(pkgutil.iter_modules(__path__), key=lambda info: info.name):
        module = importlib.import_module(f"{__name__}.{info.name}")
        found += getattr(module, "READERS", ()) or (module.READER,)
    return tuple(found)
