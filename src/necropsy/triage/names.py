"""What a function is called in every build: owners of lambdas, without parameters, templates, clones and versions."""

from __future__ import annotations

import re
from functools import lru_cache

from necropsy.lazy_re import regex
from necropsy.predicates import bare_name

_LAMBDA = regex(r"(?:\{lambda|<lambda|'lambda|\$_\d)")
_OWNER = regex(
    r"(?P<owner>(?:[\w~]+::|\(anonymous namespace\)::)*[\w~]+)(?:<[^<>]*>)?(?:\([^()]*\))?(?: const)?"
    r"::(?:\{lambda|<lambda|'lambda|\$_\d)"
)
"""``rows::sum(int)::{lambda(int)#1}``, ``rows::sum::$_0``, ``rows::sum(int)::<lambda(int)>``; also in templates."""
_CLONE = regex(r"(?:\.(?:localalias|clone|__uniq|llvm|cold|isra|part|constprop|lto_priv)\b.*| \[clone .*|\[abi:\w+\])")
_SAYS_NOTHING = regex(
    r"operator\(\)$|_FUN$|_M_\w+$|__invoke\w*$|_+invoke\w*$|__\w+_(?:impl|aux)$|\(anonymous namespace\)$|"
    r"\{anonymous\}$|lambda\b|\{lambda|main$|_start$"
)
_OWNED = regex(
    r"std::(?:unique_ptr<(?P<a>[\w:]+)[^~]*::~unique_ptr|default_delete<(?P<b>[\w:]+)>::operator\(\)|"
    r"_Sp_counted_ptr\w*<(?P<c>[\w:]+)[^(]*::_M_dispose)"
)
"""What destroys an object that a smart pointer owns: inlined or not, it is the destructor of that type."""
_OF_THE_LIBRARY = ("std::", "__gnu_cxx::", "__cxxabiv1::", "abi::")


@lru_cache(maxsize=16384)
def of_function(function: str) -> tuple[str, str] | None:
    """Last component and full name of a demangled function; None where the name tells nothing about whose code it is.

    A lambda has the name of the function that it is in. ``rows::Cache<int>::evict(int) [clone .cold]`` ->
    ``("evict", "rows::Cache::evict")``.
    """
    if _LAMBDA.search(function):
        return owner_of_lambda(function)
    return _split(bare_name(_CLONE.sub("", function)))


@lru_cache(maxsize=16384)
def owner_of_lambda(function: str) -> tuple[str, str] | None:
    """The function whose lambda is named, also where that is an argument of ``std::_Function_handler<...>``."""
    owners = [match["owner"] for match in _OWNER.finditer(function)]
    return next((_split(one) for one in owners if not one.startswith(_OF_THE_LIBRARY)), None)


def _split(name: str) -> tuple[str, str] | None:
    name = name.replace("(anonymous namespace)", "{anonymous}").strip()
    scope, _, last = name.rpartition("::")
    if "operator" in scope:  # a conversion: operator std::string
        last = name[name.index("operator") :]
    if not last or _SAYS_NOTHING.match(last) or name.startswith(_OF_THE_LIBRARY):
        return None
    return last, name


@lru_cache(maxsize=16384)
def of_template(function: str) -> tuple[str, str] | None:
    """What a template of the C++ library stands for: the owner of the lambda that it calls, or the destructor."""
    if _LAMBDA.search(function):
        return owner_of_lambda(function)
    owned = _OWNED.match(function)
    if owned is None:
        return None
    scope, _, last = next(filter(None, owned.groups())).rpartition("::")
    return f"~{last}", "::".join(filter(None, (scope, last, f"~{last}")))


def agree(first: str, second: str) -> bool:
    """Full names of one last component can mean one function: one of them has no scope, or a part of the other's.

    ``dot`` and ``rows::dot`` agree, ``AddOp::Compute`` and ``MulOp::Compute`` do not.
    """
    a, b = _scopes(first), _scopes(second)
    short, long = (a, b) if len(a) <= len(b) else (b, a)
    return not short or long[-len(short) :] == short


@lru_cache(maxsize=16384)
def _scopes(name: str) -> tuple[str, ...]:
    parts = [part for part in re.split("::", name)[:-1] if part != "{anonymous}"]
    return tuple(parts)
