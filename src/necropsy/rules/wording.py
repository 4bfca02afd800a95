"""Numbers and names as a reader wants them."""

from __future__ import annotations

import re

from necropsy.model import Culprit
from necropsy.predicates import bare_name


def size(octets: float) -> str:
    """Bytes in the unit that people think in: ``128 bytes``, ``8 MiB``, ``1.91 MiB``."""
    if octets >= 100_000 and octets % 100_000 == 0 and octets % 1024:
        return f"{octets:,.0f} bytes"  # a limit that a person chose in decimal: keep it as it was chosen
    if octets < 1024:
        number = round(octets, 1)
        return f"{number:g} byte" + ("" if number == 1 else "s")
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if octets >= scale:
            return f"{float(f'{octets / scale:.3g}'):,g} {unit}"
    raise AssertionError(octets)


def count(number: float) -> str:
    """``104,857``."""
    return f"{int(number):,}"


_TAG = re.compile(r"\.(?:cpython-\d|cp\d|abi3)[\w-]*\.(?:so|pyd)(?=\+0x)")
"""What the name of a Python extension ends with: ``_json.cpython-311-x86_64-linux-gnu.so+0x500e`` is ``_json+0x500e``."""


def short(function: str | None) -> str:
    """A function's name without parameters, in the backquotes of running text; *an unnamed function* for None."""
    return f"`{_TAG.sub('', bare_name(function))}`" if function else "an unnamed function"


def who(culprit: Culprit | None) -> str:
    """The culprit in running text: its function, else its library and the line of Python that called it."""
    if culprit is None:
        return "native code"
    if culprit.nearest:
        return f"native code ({NEAREST} is {_named(culprit)})"
    return _named(culprit)


NEAREST = "the nearest frame that is not the interpreter's"


def _named(culprit: Culprit) -> str:
    if culprit.function:
        return short(culprit.function)
    within = f" in {culprit.module}" if culprit.module else ""
    if culprit.python is not None and culprit.python.file:
        return f"native code{within} called from {culprit.python.file.rsplit('/', 1)[-1]}:{culprit.python.line}"
    return f"native code{within}"


def sentence(text: str) -> str:
    """Begin it with a capital letter; nothing else is changed, as ``str.capitalize`` would."""
    return text[:1].upper() + text[1:]
