"""Regular expressions that are compiled at their first use.

A report takes a few dozen of the 900 that the readers and the rules define. To compile all of them takes a third of the
time in which ``necropsy explain`` starts.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, Generic, cast

_METHODS = ("match", "search", "fullmatch", "finditer", "findall", "sub", "subn", "split")


def regex(spelled: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """``re.compile(spelled, flags)``, when its result is first asked for anything.

    A mistake in ``spelled`` is found only then; the tests compile every pattern.
    """
    return cast("re.Pattern[AnyStr]", _LazyPattern(spelled, flags))


class _LazyPattern(Generic[AnyStr]):
    """Stands for a pattern. It can be asked whatever a pattern can; it is not one that functions of ``re`` accept.

    ``spelled`` may be a pattern of text or of bytes, as for ``re.compile``.
    """

    def __init__(self, spelled: AnyStr, flags: int) -> None:
        self._spelled: AnyStr = spelled
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # what copies and pickles ask for; and our own, of a copy that has nothing yet
            raise AttributeError(name)
        real = re.compile(self._spelled, self._flags)
        for method in _METHODS:  # found without this function from now on
            setattr(self, method, getattr(real, method))
        return getattr(real, name)

    def __repr__(self) -> str:
        return f"regex({self._spelled!r}, {self._flags!r})"
