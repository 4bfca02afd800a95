"""Constants and the sizes of types in bytes, as on x86-64 Linux. None: not known; never a guess."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from necropsy.audit.cxx.expressions import evaluate
from necropsy.audit.cxx.model import Class, TemplateParameter, Unit
from necropsy.audit.cxx.types import Type, is_builtin, parsed

_DEEPEST = 40
_FIXED = {
    **dict.fromkeys(
        ("char", "bool", "int8_t", "uint8_t", "int8", "uint8", "qint8", "quint8", "uchar", "byte", "char8_t"), 1
    ),
    **dict.fromkeys(("int16_t", "uint16_t", "int16", "uint16", "half", "bfloat16", "qint16", "quint16", "char16_t"), 2),
    **dict.fromkeys(
        ("int", "float", "int32_t", "uint32_t", "int32", "uint32", "qint32", "char32_t", "wchar_t", "DataType"), 4
    ),
    **dict.fromkeys(
        ("int64_t", "uint64_t", "int64", "uint64", "size_t", "ssize_t", "ptrdiff_t", "double", "complex64"), 8
    ),
    **dict.fromkeys(("intptr_t", "uintptr_t", "off_t", "time_t", "Index", "DenseIndex", "int_fast64_t"), 8),
    **dict.fromkeys(("complex128", "max_align_t", "string_view", "StringPiece"), 16),
    "tstring": 24,
}
_LIBRARY = {
    "vector": 24,
    "string": 32,
    "basic_string": 32,
    "unique_ptr": 8,
    "shared_ptr": 16,
    "weak_ptr": 16,
    "function": 32,
    "deque": 80,
    "list": 24,
    "map": 48,
    "set": 48,
    "multimap": 48,
    "multiset": 48,
    "unordered_map": 56,
    "unordered_set": 56,
    "atomic": 0,
    "mutex": 40,
    "TensorMap": 32,
    "Tensor": 32,
    "TensorShape": 24,
    "initializer_list": 16,
}
_EIGEN_ALIASES = {"f": "float", "d": "double", "i": "int"}


@dataclass
class Sizes:
    """Answers for one unit; ``bound`` are constants and types known besides: local constants, template arguments."""

    unit: Unit
    bound: Mapping[str, str] = field(default_factory=dict)
    scope: str = ""
    """The qualified name of the function or class where names are looked up."""
    depth: int = 0

    def value(self, text: str) -> int | None:
        """The value of a constant expression."""
        return evaluate(text, self._resolve, self._measure) if self.depth < _DEEPEST else None

    def _inner(self, scope: str | None = None, bound: Mapping[str, str] | None = None) -> Sizes:
        return Sizes(
            self.unit, self.bound if bound is None else bound, self.scope if scope is None else scope, self.depth + 1
        )

    def _resolve(self, name: str) -> int | None:
        plain = name.removeprefix("::").removeprefix("this->")
        if plain in self.bound and self.bound[plain] != plain:
            return self._inner().value(self.bound[plain])
        if "<" in plain:
            return self._member_of_template(plain)
        for candidate in self._candidates(plain):
            text = self.unit.constants.get(candidate)
            if text is not None:
                return self._inner(scope=candidate.rpartition("::")[0]).value(text)
        several = {key: text for key, text in self.unit.constants.items() if key.endswith(f"::{plain}")}
        if len(set(several.values())) == 1:
            key, text = next(iter(several.items()))
            return self._inner(scope=key.rpartition("::")[0]).value(text)
        return None

    def _candidates(self, name: str) -> list[str]:
        """The name in the scope, and in each one around it."""
        parts = self.scope.split("::") if self.scope else []
        return ["::".join((*parts[:count], name)) for count in range(len(parts), -1, -1)]

    def _member_of_template(self, name: str) -> int | None:
        """``Traits<float, 4>::kSize``"""
        type_ = parsed(name)
        member = type_.rest.removeprefix("::")
        cls = self.unit.class_named(type_.name, self.scope)
        text = self.unit.constants.get(f"{cls.qualified}::{member}") if cls is not None else None
        if cls is None or text is None:
            return None
        return self._inner(cls.qualified, self._arguments(cls.template, type_.arguments)).value(text)

    def _arguments(self, parameters: tuple[TemplateParameter, ...], given: tuple[str, ...]) -> dict[str, str]:
        """Template parameters with what they are: the given arguments, in which names of this scope are resolved."""
        found: dict[str, str] = {}
        for number, one in enumerate(parameters):
            if one.is_pack:
                break
            text = given[number] if number < len(given) else one.default
            if text is None or not one.name:
                continue
            if one.type is not None:
                inner = Sizes(self.unit, {**self.bound, **found}, self.scope, self.depth + 1)
                value = inner.value(text)
                if value is not None:
                    found[one.name] = str(value)
            else:
                found[one.name] = found.get(text) or self.bound.get(text, text)
        return found

    def _measure(self, text: str) -> int | None:
        return self._inner().bytes(parsed(text)) if self.depth < _DEEPEST else None

    def bytes(self, type_: Type) -> int | None:
        """The size of an object of this type; of a reference, that of a pointer."""
        if self.depth >= _DEEPEST:
            return None
        count = 1
        for one in type_.extents:
            extent = self.value(one) if one else None
            if extent is None or extent < 0:
                return None
            count *= extent
        if type_.is_indirect:
            return 8 * count
        one_size = self._plain(type_)
        return one_size * count if one_size is not None else None

    def _plain(self, type_: Type) -> int | None:
        if is_builtin(type_.name):
            words = type_.name.split()
            if "char" in words:
                return 1
            if "short" in words:
                return 2
            if "double" in words:
                return 16 if "long" in words else 8
            return 8 if "long" in words else 4
        if not type_.arguments and type_.name in self.bound and self.bound[type_.name] != type_.name:
            return self._inner().bytes(parsed(self.bound[type_.name]))
        own = self._own(type_)
        if own is not None:
            return own
        if type_.last in _FIXED and not type_.arguments:
            return _FIXED[type_.last]
        return self._of_library(type_)

    def _own(self, type_: Type) -> int | None:
        """The size of a type of the project; None where it has no such type, or its size is not known."""
        for candidate in self._candidates(type_.name):
            alias = self.unit.aliases.get(candidate)
            if alias is not None and str(alias[0]) != str(type_):
                bound = {**self.bound, **self._arguments(alias[1], type_.arguments)}
                return self._inner(candidate.rpartition("::")[0], bound).bytes(alias[0])
        cls = self.unit.class_named(type_.name, self.scope)
        if cls is None:
            return None
        special = next(
            (one for one in self.unit.classes[cls.qualified] if one.arguments and one.arguments == type_.arguments),
            None,
        )
        return self._of_class(special or cls, self._arguments(cls.template, type_.arguments))

    def _of_class(self, cls: Class, bound: dict[str, str]) -> int | None:
        inner = self._inner(cls.qualified, bound)
        total, widest = 0, 1
        parts = [inner.bytes(one) for one in cls.bases]
        fields = [(one.type, inner.bytes(one.type)) for one in cls.fields if not one.is_static]
        if None in parts or any(size is None for _, size in fields):
            return None
        for part in parts:
            total += part or 0
        for type_, size in fields:
            if size is None:
                return None
            step = min(8, max(1, size if not type_.extents else inner.bytes(Type(type_.name, type_.arguments)) or 1))
            step = 1 << (step.bit_length() - 1)
            widest = max(widest, step)
            total = max(total, size) if cls.kind == "union" else -(-total // step) * step + size
        return max(1, -(-total // widest) * widest)

    def _of_library(self, type_: Type) -> int | None:
        last, given = type_.last, type_.arguments
        if last == "array" and len(given) == 2:
            return self._times(given[0], given[1])
        if last in {"pair", "tuple"}:
            sizes = [self._measure(one) for one in given]
            known = [one for one in sizes if one is not None]
            return sum(-(-one // 8) * 8 for one in known) if len(known) == len(sizes) else None
        if last == "complex" and given:
            return self._times(given[0], "2")
        if last in {"atomic", "optional"} and given:
            one_size = self._measure(given[0])
            return None if one_size is None else one_size if last == "atomic" else one_size + 8
        if last in {"aligned_storage", "aligned_storage_t"}:
            return self.value(given[0]) if given else None
        if last == "bitset" and given:
            bits = self.value(given[0])
            return None if bits is None else -(-bits // 64) * 8
        if last in {"Matrix", "Array"} and len(given) >= 3:
            return self._times(given[0], f"({given[1]}) * ({given[2]})") if self._is_fixed(given[1:3]) else 24
        if last == "TensorFixedSize" and len(given) >= 2:
            extents = parsed(given[1])
            return self._times(given[0], " * ".join(f"({one})" for one in extents.arguments) or "1")
        if last in {"InlinedVector", "FixedArray"} and len(given) >= 2:
            inner = self._times(given[0], given[1])
            return None if inner is None else inner + 16
        eigen = self._eigen_alias(type_)
        return eigen if eigen is not None else _LIBRARY.get(last)

    def _is_fixed(self, extents: tuple[str, ...]) -> bool:
        return all((value := self.value(one)) is not None and value >= 0 for one in extents)

    def _eigen_alias(self, type_: Type) -> int | None:
        name = type_.last
        for head in ("Matrix", "Vector", "Array", "RowVector"):
            rest = name.removeprefix(head)
            if rest != name and len(rest) == 2 and rest[0].isdigit() and rest[1] in _EIGEN_ALIASES:
                side = int(rest[0])
                return self._times(_EIGEN_ALIASES[rest[1]], str(side * side if head == "Matrix" else side))
        return None

    def _times(self, type_: str, count: str) -> int | None:
        one_size, number = self._measure(type_), self.value(count)
        return None if one_size is None or number is None or number < 0 else one_size * number
