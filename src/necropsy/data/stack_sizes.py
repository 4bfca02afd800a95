"""How large a thread's stack is on other systems: the table ``stack_sizes.toml``."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Literal

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover - the backport of the same parser
    import tomli as tomllib


@dataclass(frozen=True)
class StackSize:
    """A row of the table: the ``bytes`` that a thread's stack has elsewhere."""

    where: str
    bytes: int
    threads: Literal["main", "other", "all"]
    note: str
    source: str

    def holds_for(self, *, main: bool) -> bool:
        """The size is one of the main thread's stack, or of the others'."""
        return self.threads == "all" or (self.threads == "main") == main


@lru_cache(maxsize=1)
def stack_sizes() -> tuple[StackSize, ...]:
    """The table, in its order."""
    table = tomllib.loads(files("necropsy.data").joinpath("stack_sizes.toml").read_text(encoding="utf-8"))
    return tuple(StackSize(**row) for row in table["stack"])


def too_small_for(peak: int, *, main: bool) -> tuple[StackSize, ...]:
    """The sizes that a thread with this peak would not fit into, smallest first."""
    return tuple(
        sorted((one for one in stack_sizes() if one.holds_for(main=main) and peak > one.bytes), key=lambda it: it.bytes)
    )
