"""Names of functions as people read them: demangled, and short enough for a line."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from functools import lru_cache

LONGEST_ARGUMENTS = 60
"""Template arguments longer than this are elided; what is between them is rarely what one looks for."""
_MANGLED = re.compile(r"_Z|__Z")
_LONGEST_MANGLED = 16_384
_VERSION = re.compile(r"@{1,2}[A-Za-z0-9_.]+$")
_CLONE = re.compile(r"\.(cold|part|isra|constprop|lto_priv|localalias|llvm|clone)(\.\d+)*(?=\.|$|\b)")
_VARIANT = re.compile(
    r"__((?:mem|str|wcs|wmem|bcopy|bzero|rawmem|stp)[a-z]*)(?:_chk)?_"
    r"(?:evex|avx|sse|ssse|erms|generic|c)(?:2|3|4|42|4_1|4_2|512|512bw)?(?:_unaligned|_no_vzeroupper|_rtm|_erms|_back|_bmi2)*(?:_erms)?"
)
_REPLACED = (
    ("[abi:cxx11]", ""),
    ("std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >", "std::string"),
    ("std::basic_string<char, std::char_traits<char>, std::allocator<char> >", "std::string"),
    ("std::__cxx11::", "std::"),
    ("(anonymous namespace)", "{anonymous}"),
)


def compact(name: str) -> str:
    """A demangled name in short: ``std::string`` spelled so, long template arguments left out."""
    for old, new in _REPLACED:
        name = name.replace(old, new)
    return _elide(name)


def _elide(name: str) -> str:
    """Replace the content of every outermost ``<...>`` longer than ``LONGEST_ARGUMENTS`` by three dots; linear."""
    out: list[str] = []
    depth = start = index = 0
    while index < len(name):
        if depth == 0 and name.startswith("operator", index) and not name[index - 1 : index].isalnum():
            match = _OPERATOR.match(name, index)
            if match is not None:
                out.append(match[0])
                index = match.end()
                continue
        letter = name[index]
        if letter == "<":
            if depth == 0:
                start = index
            depth += 1
        elif letter == ">" and name[index - 1] != "-" and depth:
            depth -= 1
            if depth == 0:
                inner = name[start + 1 : index]
                out.append("<" + (inner if len(inner) <= LONGEST_ARGUMENTS else "...") + ">")
        elif depth == 0:
            out.append(letter)
        index += 1
    if depth:
        out.append(name[start:])
    return "".join(out)


_OPERATOR = re.compile(r"operator(?:<=>|<<=|>>=|->\*|<<|>>|<=|>=|->|<|>)")


@lru_cache(maxsize=4096)
def readable(symbol: str) -> str:
    """The name of a symbol of the symbol table: without its version, demangled and compact where it is C++."""
    symbol = _VERSION.sub("", symbol)
    return demangle(symbol) or plain(symbol)


def plain(symbol: str) -> str:
    """``strlen`` for ``__strlen_evex``, a CPU's variant (glibc: sysdeps/x86_64/multiarch/ifunc-impl-list.c)."""
    match = _VARIANT.fullmatch(symbol)
    return symbol if match is None else match[1]


@lru_cache(maxsize=4096)
def demangle(symbol: str) -> str | None:
    """A mangled name of C++ or Rust in short; None where it is none or no demangler is at hand."""
    if symbol.startswith("_R"):
        from necropsy.formats import demangle_rust

        return demangle_rust.readable(symbol)
    if not _MANGLED.match(symbol) or len(symbol) > _LONGEST_MANGLED:
        return None
    clone = _CLONE.search(symbol)
    full = _demangler()(symbol[: clone.start()] if clone else symbol)
    if full is None:
        return None
    from necropsy.formats import demangle_rust

    return compact(demangle_rust.without_hash(full))


@lru_cache(maxsize=256)
def demangle_type(name: str) -> str | None:
    """The type behind ``typeid(T).name()``: ``St13runtime_error`` is ``std::runtime_error``."""
    full = _demangler()(name.removeprefix("*"))
    return None if full is None else compact(full)


@lru_cache(maxsize=1)
def _demangler() -> Callable[[str], str | None]:
    for library in ("libstdc++.so.6", "libc++abi.so.1"):
        try:
            function = ctypes.CDLL(library)["__cxa_demangle"]
        except (OSError, AttributeError):
            continue
        function.restype = ctypes.c_void_p
        function.argtypes = (ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int))
        return _Demangle(function)
    return lambda _symbol: None


class _Demangle:
    def __init__(self, function: Callable[..., int | None]) -> None:
        self._function = function
        self._free = ctypes.CDLL(None).free
        self._free.argtypes = (ctypes.c_void_p,)
        self._free.restype = None

    def __call__(self, symbol: str) -> str | None:
        status = ctypes.c_int()
        pointer = self._function(symbol.encode("utf-8", "replace"), None, None, ctypes.byref(status))
        if not pointer:
            return None
        try:
            return ctypes.string_at(pointer).decode("utf-8", "replace")
        finally:
            self._free(pointer)
