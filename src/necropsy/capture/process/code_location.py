"""What is known of one program counter."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class CodeLocation:
    """What is known of one program counter: shared by all frames that stand there."""

    pc: int
    function: str | None
    module: str | None
    offset: int | None
    source: str | None = None
    line: int | None = None
    executable: bool = True
    inline: bool = False
    unwinds: bool | None = None
    """Whether the module's unwind tables cover it; None where that is not known."""
