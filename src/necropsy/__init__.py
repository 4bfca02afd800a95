"""necropsy finds out what killed a Python process, shows the evidence, and proves it."""

from __future__ import annotations

__version__ = "0.1.0"

__all__ = ["__version__"]
