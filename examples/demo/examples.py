"""The examples and what is true of each, from ``examples/catalogue.toml``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

import msgspec

from necropsy.errors import InputError, OptionError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).parents[1]
"""``examples`` of this clone."""
STACK = 8 << 20
"""What most Linux systems give a main thread, in bytes."""
MARK = "# the line"


class Op(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is compiled: a source in ``ops/`` and its flags."""

    source: str
    flags: tuple[str, ...]


class Proof(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What experiments must say of an example that dies; the catalogue's head explains the fields."""

    fix: str | None = None
    no_fix: str | None = None
    corrected: str | None = None
    options: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()


class Example(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One example and what is true of it; the catalogue's head explains the fields. ``stack`` and ``peak`` in bytes."""

    name: str
    about: str
    script: str
    outcome: tuple[str, ...]
    build: str | None = None
    arguments: tuple[str, ...] = ()
    stack: int = STACK
    rule: tuple[str, ...] = ()
    culprit: str | None = None
    kernel: str | None = None
    op: str | None = None
    line: bool | str = False
    peak: tuple[int, int] | None = None
    proof: Proof | None = None


class Catalogue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All examples, and the ops that they need."""

    build: dict[str, Op]
    example: tuple[Example, ...]


def catalogue(examples: Path) -> Catalogue:
    """The catalogue of the folder ``examples``.

    Raises:
        InputError: a field that nobody knows, or a value of the wrong type.

    """
    try:
        return msgspec.convert(tomllib.loads((examples / "catalogue.toml").read_text()), Catalogue)
    except (msgspec.ValidationError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{examples / 'catalogue.toml'}: {error}") from error


def chosen(examples: Sequence[Example], names: Sequence[str]) -> tuple[Example, ...]:
    """The examples with these names, all of them where none is named.

    Raises:
        OptionError: there is no such example.

    """
    unknown = sorted(set(names) - {example.name for example in examples})
    if unknown:
        known = " ".join(example.name for example in examples)
        close = get_close_matches(unknown[0], [one.name for one in examples], n=1)
        meant = f". Did you mean {close[0]!r}?" if close else f"; there are: {known}"
        raise OptionError(f"no example named {', '.join(unknown)}{meant}")
    return tuple(example for example in examples if not names or example.name in names)


def marked_line(script: Path) -> int | None:
    """The number of the line that ends with ``# the line``."""
    lines = script.read_text().splitlines()
    return next((number for number, line in enumerate(lines, 1) if line.endswith(MARK)), None)
