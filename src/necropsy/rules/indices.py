"""Which columns hold indices: classes, tokens, rows."""

from __future__ import annotations

from necropsy.model import Column

_TYPES = frozenset({"int32", "int64", "uint32", "uint64", "int"})
"""Indices have these types; pixels and counts that are kept small have others."""


def is_index(column: Column) -> bool:
    """An integer of 32 or 64 bits with a range that starts at 0 or above."""
    return column.dtype in _TYPES and column.low is not None and column.low >= 0
