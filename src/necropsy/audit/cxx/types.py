"""The text of a C++ type -> its parts: name, template arguments, pointers, reference, extents."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from necropsy.audit.cxx.tokens import arguments, closing

_QUALIFIERS = re.compile(
    r"\b(?:const|volatile|constexpr|static|mutable|inline|typename|struct|class|enum|register|thread_local|extern|virtual"
    r"|explicit|friend|template(?=\s))\b"
)
_FOREIGN = re.compile(r"^(?:::)?(?:tensorflow|tsl)::(?=\w)")
_NAME = re.compile(r"(?:::)?\s*[A-Za-z_~]\w*")
_BUILTIN_WORDS = frozenset({"unsigned", "signed", "long", "short", "int", "char", "double", "float"})


@dataclass(frozen=True, slots=True)
class Type:
    """A type. ``name`` has no ``const`` and no ``tensorflow::``: ``std::vector``, ``unsigned char``."""

    name: str
    arguments: tuple[str, ...] = ()
    """The template arguments as text: types or expressions; see ``parsed``."""
    pointers: int = 0
    reference: str = ""
    """``&``, ``&&`` or empty."""
    const: bool = False
    extents: tuple[str, ...] = ()
    """The extents of an array as text, outermost first; an empty one for ``[]``."""
    rest: str = ""
    """What follows the template arguments of a nested name: ``::value_type`` of ``std::vector<int>::value_type``."""

    @property
    def last(self) -> str:
        """The name without namespaces."""
        return self.name.rpartition("::")[2]

    @property
    def is_indirect(self) -> bool:
        """A pointer or a reference: the object itself lies elsewhere."""
        return bool(self.pointers or self.reference)

    def __str__(self) -> str:
        inner = f"<{', '.join(self.arguments)}>" if self.arguments else ""
        extents = "".join(f"[{one}]" for one in self.extents)
        const = "const " if self.const else ""
        return f"{const}{self.name}{inner}{self.rest}{'*' * self.pointers}{self.reference}{extents}"


@lru_cache(maxsize=4096)
def parsed(text: str) -> Type:
    """The parts of a type that was written as ``text``."""
    const = re.search(r"\bconst\b", text) is not None
    plain = " ".join(_QUALIFIERS.sub(" ", text).split())
    extents: list[str] = []
    while plain.endswith("]") and "[" in plain:
        start = plain.rindex("[")
        extents.insert(0, plain[start + 1 : -1].strip())
        plain = plain[:start].strip()
    reference = ""
    while plain.endswith("&"):
        plain, reference = plain[:-1].strip(), reference + "&"
    pointers = 0
    while plain.endswith("*"):
        plain, pointers = plain[:-1].strip(), pointers + 1
    name, inner, rest = _named(plain)
    return Type(name, inner, pointers, reference, const, tuple(extents), rest)


def _named(plain: str) -> tuple[str, tuple[str, ...], str]:
    plain = _FOREIGN.sub("", plain)
    start = plain.find("<")
    if start < 0:
        return re.sub(r"\s*::\s*", "::", plain).removeprefix("::"), (), ""
    end = angle_end(plain, start)
    name = re.sub(r"\s*::\s*", "::", plain[:start].strip()).removeprefix("::")
    if end is None:
        return name, (), ""
    return name, tuple(arguments(plain[start + 1 : end])), re.sub(r"\s+", "", plain[end + 1 :])


def angle_end(text: str, start: int) -> int | None:
    """Where the ``<`` at ``start`` is closed."""
    depth, at = 0, start
    while at < len(text):
        sign = text[at]
        if sign in "([{":
            closed = closing(text, at)
            if closed is None:
                return None
            at = closed
        elif sign == "<":
            depth += 1
        elif sign == ">" and text[at - 1] != "-":
            depth -= 1
            if depth == 0:
                return at
        at += 1
    return None


def is_other_instance(type_: Type, template: Iterable[str], specialized: tuple[str, ...]) -> bool:
    """Inside a class template, ``Tree<Left>`` is another type than ``Tree<T>``, and the compiler ends such a chain."""
    own = tuple("".join(one.split()) for one in specialized or tuple(template))
    return bool(type_.arguments and own) and own != tuple("".join(one.split()) for one in type_.arguments)


def is_builtin(name: str) -> bool:
    """``unsigned long``, ``int``, ..."""
    return bool(name) and set(name.split()) <= _BUILTIN_WORDS
