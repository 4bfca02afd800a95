"""What is wrong in a C++ source, as the analysis of its code has found it; the rules say it in words."""

from __future__ import annotations

from necropsy.model.base import Confidence, Noun, Severity

LAYERS = ("compile_commands.json", "g++'s call graph", "clang-tidy")
"""What adds to the analysis of sources where it exists; a gap with this name says that it was not used."""


class CodePlace(Noun, frozen=True, kw_only=True):
    """A place in a source; lines and columns from 1 on."""

    path: str
    line: int
    column: int
    end_line: int
    text: str
    """The line, without its indentation."""
    role: str
    """What is there: ``function``, ``call``, ``declaration``, ``type``, ``member``, ``access``."""


class CodeFact(Noun, frozen=True, kw_only=True):
    """One step of the proof: a claim, what was seen, and where."""

    claim: str
    seen: str
    where: str | None = None
    """``path:line``"""


class CodeDefect(Noun, frozen=True, kw_only=True):
    """One defect in a C++ source."""

    rule: str
    """Which rule tells it: ``op-recursion``."""
    case: str
    """Which of the rule's cases: each rule file lists its own."""
    place: CodePlace
    """The faulty access, declaration or function."""
    others: tuple[CodePlace, ...] = ()
    function: str | None = None
    """The function that it is in, with its class."""
    kernel: str | None = None
    """The class of the kernel below which it runs."""
    op: str | None = None
    """The registered op of that kernel."""
    names: dict[str, str] = {}
    """What the rule's sentences name: variables, types, members."""
    numbers: dict[str, int] = {}
    """The worst-case numbers: bytes, levels, indices, sizes."""
    facts: tuple[CodeFact, ...] = ()
    severity: Severity = "warning"
    confidence: Confidence = "likely"
    stack: int | None = None
    """The size in bytes of the stack that it is held against, where it is about the stack."""
    is_in_macro: bool = False
    """It lies in a macro's expansion, where nothing may be edited."""
    repair: str | None = None
    """What ``check --fix`` can do about it, as it goes on behind "necropsy check --fix"; None: nothing."""
    source: str | None = None
    """The source that was checked, where the place is in one of its headers."""
