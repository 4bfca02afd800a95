"""Demangled type descriptors of Microsoft's compiler: ``.?AVruntime_error@std@@`` becomes ``std::runtime_error``.

Microsoft publishes no grammar; LLVM has it in ``MicrosoftDemangle.cpp``. Classes, structs, unions, enums, pointers and
simple types are read; template arguments are passed over, except those of strings.
"""

from __future__ import annotations

from necropsy.lazy_re import regex

LONGEST = 4096
_STRINGS = {
    "?$basic_string@DU?$char_traits@D@std@@V?$allocator@D@2@@std@@": "std::string",
    "?$basic_string@_WU?$char_traits@_W@std@@V?$allocator@_W@2@@std@@": "std::wstring",
}
_SIMPLE = {
    "X": "void",
    "_N": "bool",
    "D": "char",
    "C": "signed char",
    "E": "unsigned char",
    "_W": "wchar_t",
    "_U": "char32_t",
    "_S": "char16_t",
    "_Q": "char8_t",
    "F": "short",
    "G": "unsigned short",
    "H": "int",
    "I": "unsigned int",
    "J": "long",
    "K": "unsigned long",
    "_J": "long long",
    "_K": "unsigned long long",
    "M": "float",
    "N": "double",
    "O": "long double",
}
_POINTER = regex(r"[PQRS]E?(?P<const>[ABCD])")
_CLASS = regex(r"(?:\?A)?(?:[TUV]|W[0-7])")
_ANONYMOUS = regex(r"\?A0x[0-9a-fA-F]{1,16}\Z|\?A\Z")
_PART = regex(r"[A-Za-z_$]\w*")
_NUMBER = regex(r"\$0\??(?:[0-9]|[A-P]{0,16}@)")
_NAME = regex(r"(?:\w{1,500}@|[0-9]|\?A0x[0-9a-f]{1,16}@){1,32}@")
_QUALIFIED = regex(r"\?(?P<special>\?[01])?(?P<parts>[A-Za-z_]\w*(?:@[A-Za-z_]\w*){0,20})@@")
_DEEPEST = 16
_TEMPLATE = regex(r"\?\$(\w{1,500})@")


def type_name(decorated: str) -> str | None:
    """The type of a type descriptor's name; None where it is none, or where it cannot be read."""
    if not decorated.startswith(".") or len(decorated) > LONGEST:
        return None
    return _type(decorated[1:])


def qualified_name(symbol: str) -> str:
    """``?topk@cuda@at@@YA...`` as people write it, ``at::cuda::topk``; with template arguments it stays as it is."""
    match = _QUALIFIED.match(symbol)
    if match is None:
        return symbol
    parts = match["parts"].split("@")[::-1]
    ending = {"?0": parts[-1], "?1": f"~{parts[-1]}"}.get(match["special"] or "")
    return "::".join([*parts, ending] if ending else parts)


def _type(text: str) -> str | None:
    if text in _SIMPLE:
        return _SIMPLE[text]
    if match := _POINTER.match(text):
        inner = _type(text[match.end() :])
        const = " const" if match["const"] in "BD" else ""
        return None if inner is None else f"{inner}{const}*"
    match = _CLASS.match(text)
    return _qualified(text[match.end() :]) if match is not None else None


def _qualified(name: str) -> str | None:
    """``runtime_error@std@@``: the innermost part first."""
    if name in _STRINGS:
        return _STRINGS[name]
    if match := _TEMPLATE.match(name):
        end = _after_arguments(name, match.end(), 0)
        outer = name[end:].removesuffix("@@").removesuffix("@") if end is not None else ""
        parts = [part for part in reversed(outer.split("@")) if part and _PART.fullmatch(part)]
        return "::".join([*parts, f"{match[1]}<...>"])
    if not name.endswith("@@"):
        return None
    parts = name[:-2].split("@")
    if not all(_PART.fullmatch(part) or _ANONYMOUS.match(part) for part in parts):
        return None
    return "::".join("(anonymous namespace)" if _ANONYMOUS.match(part) else part for part in reversed(parts))


def _after_arguments(text: str, at: int, depth: int) -> int | None:
    """Where the template arguments that begin at ``at`` end; None where that cannot be read."""
    while at < len(text) and depth < _DEEPEST:
        if text[at] == "@":
            return at + 1
        end = _after_type(text, at, depth)
        if end is None:
            return None
        at = end
    return None


def _after_type(text: str, at: int, depth: int) -> int | None:
    if match := _NUMBER.match(text, at):
        return match.end()
    while match := _POINTER.match(text, at):
        at = match.end()
    if match := _CLASS.match(text, at):
        at = match.end()
        if match := _TEMPLATE.match(text, at):
            end = _after_arguments(text, match.end(), depth + 1)
            if end is None or text[end : end + 1] == "@":
                return None if end is None else end + 1
            at = end
        name = _NAME.match(text, at)
        return name.end() if name is not None else None
    width = 2 if text[at : at + 1] == "_" else 1
    if text[at : at + width] in _SIMPLE or text[at : at + 1].isdigit():
        return at + width
    return None
