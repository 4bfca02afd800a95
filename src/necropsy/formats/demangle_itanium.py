"""Demangled C++ names: ``_ZN3abs6Kernel3RunEi`` becomes ``abs::Kernel::Run``.

Only the qualified name is read (Itanium C++ ABI, https://itanium-cxx-abi.github.io/cxx-abi/abi.html#mangling), without
template arguments and parameters. Logs have mangled names from handlers that print with ``backtrace_symbols``.
"""

from __future__ import annotations

from necropsy.formats import demangle_rust
from necropsy.lazy_re import regex

LONGEST = 4096
"""Characters of a symbol that are looked at."""

_PAIRS = regex(r"([A-Za-z]{2}):(\S+)")
_OPERATORS = dict(
    _PAIRS.findall(
        "nw:new na:new[] dl:delete da:delete[] aw:co_await cl:() ix:[] pt:-> aS:= pL:+= mI:-= mL:*= dV:/= eq:== ne:!="
        " lt:< gt:> le:<= ge:>= ls:<< rs:>> pl:+ mi:- ml:* dv:/ rm:% nt:! aa:&& oo:|| pp:++ mm:-- de:* ad:& an:& or:|"
        " eo:^ co:~ ng:- ss:<=>"
    )
)
_STANDARD = dict(
    _PAIRS.findall(
        "St:std Sa:std::allocator Sb:std::basic_string Ss:std::string Si:std::istream So:std::ostream Sd:std::iostream"
    )
)
_START = regex(r"_{1,3}Z(?:T[hv]n?\d+_(?:n?\d+_)?|Tcv?h?n?\d+_\w*?_(?=N)|GV|TV|TI|TS|TT)?")
_NUMBER = regex(r"\d{1,4}")
_SUBSTITUTION = regex(r"S[0-9A-Z]*_")
_PARAMETER = regex(r"T(?:L[0-9A-Z]*__?)?[0-9A-Z]*_")
_RUST_HASH = regex(r"h[0-9a-f]{16}$")


def readable(symbol: str) -> str:
    """The qualified name of a mangled symbol; the symbol itself where it is none, or where it cannot be read."""
    text = symbol.strip()
    if text.startswith(("_R", "__R")):
        return demangle_rust.readable(text) or symbol
    if not text.startswith(("_Z", "__Z", "___Z")):
        return symbol
    text = text.split("@", 1)[0].split(".", 1)[0][:LONGEST]
    start = _START.match(text)
    try:
        names = _Reader(text, start.end() if start else 2).encoding()
    except (IndexError, ValueError):
        return symbol
    if names and _RUST_HASH.match(names[-1]):
        names = names[:-1]
    return "::".join(names) or symbol


class _Reader:
    """Reads one name from left to right; IndexError or ValueError means that it is cut off or not a name."""

    def __init__(self, text: str, at: int) -> None:
        self.text = text
        self.at = at

    def encoding(self) -> list[str]:
        if self.text[self.at] == "Z":
            return self._local()
        if self.text[self.at] == "N":
            return self._nested()
        return self._unscoped()

    def _local(self) -> list[str]:
        """``Z <function> E <entity>``: something inside a function, which gives it its name."""
        self.at += 1
        outer = self.encoding()
        depth_end = self._pass_until_end()
        if depth_end and self.at < len(self.text) and self.text[self.at] in "NUL0123456789":
            inner = self._nested() if self.text[self.at] == "N" else self._unscoped()
            return outer + inner
        return outer

    def _pass_until_end(self) -> bool:
        self._pass_types("E")
        if self.at < len(self.text) and self.text[self.at] == "E":
            self.at += 1
            return True
        return False

    def _nested(self) -> list[str]:
        self.at += 1
        while self.text[self.at] in "rVKRO":
            self.at += 1
        names: list[str] = []
        while self.text[self.at] != "E":
            if self.text[self.at] == "I":
                self._pass_arguments()
            else:
                names += self._part(names)
        self.at += 1
        return names

    def _unscoped(self) -> list[str]:
        names: list[str] = []
        if self.text.startswith("St", self.at):
            self.at += 2
            names = ["std"]
        names += self._part(names)
        return names

    def _part(self, before: list[str]) -> list[str]:
        character = self.text[self.at]
        if character == "L":
            self.at += 1
            character = self.text[self.at]
        if character.isdigit():
            return [self._source_name()]
        two = self.text[self.at : self.at + 2]
        if character == "S":
            if two in _STANDARD:
                self.at += 2
                return [_STANDARD[two]]
            match = _SUBSTITUTION.match(self.text, self.at)
            if match is None:
                raise ValueError(self.text)
            self.at = match.end()
            return ["..."]
        if character == "T":
            match = _PARAMETER.match(self.text, self.at)
            if match is None:
                raise ValueError(self.text)
            self.at = match.end()
            return []
        if character in "CD" and self.text[self.at + 1] in "0123456789I":
            self.at += 2
            last = before[-1].rsplit("::", 1)[-1] if before else "?"
            return [last if character == "C" else f"~{last}"]
        if two in {"Ul", "Ut"}:
            return [self._closure(two)]
        if character == "B":
            self.at += 1
            self._source_name()
            return []
        if two == "cv":
            self.at += 2
            self._pass_types("EI", most=1)
            return ["operator"]
        if two in _OPERATORS:
            self.at += 2
            return [f"operator{' ' if _OPERATORS[two][0].isalpha() else ''}{_OPERATORS[two]}"]
        raise ValueError(self.text)

    def _source_name(self) -> str:
        match = _NUMBER.match(self.text, self.at)
        if match is None:
            raise ValueError(self.text)
        start = match.end()
        self.at = start + int(match[0])
        name = self.text[start : self.at]
        if len(name) < int(match[0]):
            raise IndexError(self.text)
        return "(anonymous namespace)" if name.startswith("_GLOBAL__N") else name

    def _closure(self, kind: str) -> str:
        self.at += 2
        if kind == "Ul":
            self._pass_types("E")
            self.at += 1
        while self.text[self.at] != "_":
            self.at += 1
        self.at += 1
        return "{lambda}" if kind == "Ul" else "{unnamed}"

    def _pass_arguments(self) -> None:
        self.at += 1
        self._pass_types("E")
        self.at += 1

    def _pass_types(self, stops: str, most: int = LONGEST) -> None:
        """Pass over types, literals and packs up to the one of ``stops`` that belongs to none of them."""
        depth, passed = 0, 0
        while self.at < len(self.text) and passed < most:
            character = self.text[self.at]
            if depth == 0 and character in stops:
                return
            if character.isdigit():
                self._source_name()
            elif character == "S":
                match = _SUBSTITUTION.match(self.text, self.at)
                self.at = match.end() if match else self.at + 2
            elif character == "T":
                match = _PARAMETER.match(self.text, self.at)
                self.at = match.end() if match else self.at + 1
            elif character == "L":
                self._pass_literal()
            elif character in "NIJXF" or self.text.startswith(("DT", "Dt", "Ul"), self.at):
                depth += 1
                self.at += 1 if character in "NIJXF" else 2
            elif character == "E":
                depth -= 1
                self.at += 1
            elif character == "A":
                end = self.text.find("_", self.at)
                self.at = end + 1 if end >= 0 else len(self.text)
            else:
                self.at += 2 if character == "D" else 1
                if character in "PRKOCGV":
                    continue  # a qualifier of the type that follows
            passed += depth == 0

    def _pass_literal(self) -> None:
        """``Lb1E``, ``Li42E``, ``LN3foo4KindE2E``, ``L_Z3barvE``."""
        self.at += 1
        if self.text.startswith("_Z", self.at):
            self.at += 2
            self.encoding()
            self._pass_types("E")
        elif self.text[self.at] == "N":
            self._nested()
        elif self.text[self.at].isdigit():
            self._source_name()
        end = self.text.find("E", self.at)
        self.at = end + 1 if end >= 0 else len(self.text)
