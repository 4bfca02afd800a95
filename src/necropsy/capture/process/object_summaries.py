"""Descriptions of Python objects in memory without the user's text: type, dtype, shape, and single numbers.

CPython 3.8 to 3.13 on 64 bits (``longobject.h``, ``cpython/object.h``), NumPy 1 and 2 (``ndarraytypes.h``), ctypes
(``ctypes.h``), TensorFlow and PyTorch. Anything unexpected is left out; nothing here raises.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from necropsy.capture.process import torch_tensor
from necropsy.capture.process.eager_tensor import DTYPES, Tensor, tensor_of
from necropsy.capture.process.memory import Memory
from necropsy.model import Argument, Unusual

_TYPE_NAME, _TYPE_SIZE, _TYPE_BASE = 24, 32, 256
_MOST_BASES = 12
_MOST_DIMENSIONS = 64
_MOST_ITEMS = 64
_SHOWN_ITEMS = 8
_LARGEST_SIZE = 1 << 48
_HUGE = 1 << 31
_DIGIT = 30
_MOST_DIGITS = 5
LONGEST_CONSTANT = 16
CONSTANT = re.compile(
    r"(?:u?int|q?u?int|float|complex|bfloat)\d{1,3}|bool|SAME|VALID|EXPLICIT|N?C?D?HWC?|NHWC|NCHW|NCDHW|NDHWC|[CFAK]"
)
"""Text that is a library's own: dtypes, paddings, orders of dimensions and of memory."""
_NUMPY_DTYPES = tuple(
    "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 longlong ulonglong float32 float64 longdouble complex64 "  # noqa: SIM905 - 24 lines otherwise
    "complex128 clongdouble object bytes str void datetime64 timedelta64 float16".split(" ")
)
"""By ``NPY_TYPES``, on Linux."""
_C_CONTIGUOUS, _F_CONTIGUOUS = 1, 2
_NUMBERS = {
    "numpy.float16": "e",
    "numpy.float32": "f",
    "numpy.float64": "d",
    "numpy.int8": "b",
    "numpy.uint8": "B",
    "numpy.int16": "h",
    "numpy.uint16": "H",
    "numpy.int32": "i",
    "numpy.uint32": "I",
    "numpy.int64": "q",
    "numpy.uint64": "Q",
    "numpy.bool_": "?",
    "numpy.bool": "?",
}
_POINTERS = ("_ctypes._Pointer", "_ctypes.CFuncPtr", "_ctypes.PyCFuncPtr")
_SIMPLE = "_ctypes._SimpleCData"
_POINTERS_THAT_ARE_SIMPLE = {"c_void_p", "c_char_p", "c_wchar_p", "py_object"}
_C_NUMBERS = {
    "c_bool": "?",
    "c_byte": "b",
    "c_ubyte": "B",
    "c_short": "h",
    "c_ushort": "H",
    "c_int": "i",
    "c_uint": "I",
    "c_long": "q",
    "c_ulong": "Q",
    "c_float": "f",
    "c_double": "d",
}


@dataclass(frozen=True)
class Type:
    """The type of an object: its name as C has it, its size in bytes, and those of its bases, the nearest first."""

    name: str
    size: int
    bases: tuple[str, ...]

    def is_a(self, *names: str) -> bool:
        """It is one of these, or is derived from one."""
        return self.name in names or any(base in names for base in self.bases)


class ObjectReader:
    """Describes the objects of one process. ``tagged``: its integers are those of 3.12 and later."""

    def __init__(self, memory: Memory, *, tagged: bool) -> None:
        self._memory = memory
        self._has_tags = tagged
        self._types: dict[int, Type | None] = {}

    def argument(self, name: str, address: int) -> Argument | None:
        """The object at ``address`` as the argument ``name``; None where it is no object that can be read."""
        kind = self.type_of(address)
        if kind is None:
            return None
        if kind.name == "cell":
            inside = self._memory.u64(address + 16)
            inner = self.type_of(inside) if inside else None
            if inside is None or inner is None or inner.name == "cell":
                return None
            address, kind = inside, inner
        return self._described(name, address, kind)

    def type_of(self, address: int) -> Type | None:
        """The type of the object at ``address``."""
        count, kind = self._memory.u64(address), self._memory.u64(address + 8)
        if not address or address % 8 or not count or not kind:
            return None
        if kind not in self._types:
            self._types[kind] = self._type(kind)
        return self._types[kind]

    def items(self, address: int, kind: Type) -> tuple[int, ...] | None:
        """The addresses of the items of a list or a tuple, at most 64; None of anything else."""
        size = self._memory.u64(address + 16)
        if size is None or size >= _LARGEST_SIZE or not kind.is_a("list", "tuple"):
            return None
        at = self._memory.u64(address + 24) if kind.is_a("list") else address + 24
        count = min(size, _MOST_ITEMS)
        data = self._memory.exactly(at, 8 * count) if at and count else b""
        return None if data is None else struct.unpack(f"<{len(data) // 8}Q", data)

    def text(self, address: int, longest: int = 200) -> str | None:
        """A short ``str`` of ASCII letters: names, paths, a library's constants."""
        head = self._memory.exactly(address, 40)
        kind = self.type_of(address)
        if head is None or kind is None or kind.name != "str":
            return None
        length, _hash, state = struct.unpack_from("<QqI", head, 16)
        if not (state >> 5 & 1 and state >> 6 & 1) or length > longest:  # compact and ASCII
            return None
        # Before 3.12 a pointer to wide characters stands between (PyASCIIObject.wstr).
        for start in (40, 48):
            data = self._memory.exactly(address + start, length + 1)
            if data and data[-1] == 0 and 0 not in data[:-1] and data.isascii():
                return data[:-1].decode()
        return None

    # ------------------------------------------------------------ types

    def _type(self, address: int) -> Type | None:
        size = self._memory.u64(address + _TYPE_SIZE)
        names = tuple(self._names(address))
        if not names or names[-1] != "object" or size is None or not 16 <= size < 1 << 20:
            return None
        return Type(names[0], size, names[1:])

    def _names(self, kind: int) -> Iterator[str]:
        """Of the type and its bases up to ``object``, which every true type ends at."""
        for _ in range(_MOST_BASES):
            at = self._memory.u64(kind + _TYPE_NAME)
            name = self._memory.c_string(at, 200) if at else None
            if not name or not name.isprintable():
                return
            yield name
            kind = self._memory.u64(kind + _TYPE_BASE) or 0
            if not kind:
                return

    # ------------------------------------------------------------ values

    def _described(self, name: str, address: int, kind: Type) -> Argument:
        if kind.name == "NoneType":
            return Argument(name=name, type="None", value="None")
        if kind.name in {"int", "bool"}:
            return _number(name, kind.name, self._int(address), is_bool=kind.name == "bool")
        if kind.name == "float":
            return _number(name, "float", self._unpacked(address + 16, "d"))
        if kind.name in _NUMBERS:
            return _number(name, kind.name, self._unpacked(address + 16, _NUMBERS[kind.name]))
        if kind.name == "str":
            text = self.text(address)
            known = text is not None and len(text) <= LONGEST_CONSTANT and CONSTANT.fullmatch(text)
            return Argument(name=name, type="str", value=text if known else None)
        if kind.is_a("list", "tuple"):
            return self._sequence(name, address, kind)
        if kind.is_a("numpy.ndarray"):
            return self._array(name, address, kind) or Argument(name=name, type=kind.name)
        if any(one.rpartition(".")[2] == "EagerTensor" for one in (kind.name, *kind.bases)):
            tensor = tensor_of(self._memory, address, kind.size)
            return of_tensor(name, tensor) if tensor is not None else Argument(name=name, type="EagerTensor")
        if kind.is_a(*torch_tensor.BASES):
            return self._of_torch(name, address)
        if kind.name == "DType":
            return Argument(name=name, type=kind.name, value=self._of_tensorflow(address))
        if kind.is_a(_SIMPLE, *_POINTERS):
            return self._of_ctypes(name, address, kind)
        return Argument(name=name, type=kind.name)

    def _int(self, address: int) -> int | None:
        """A ``PyLongObject``; 3.12 changed where sign and count of the digits are (``lv_tag``)."""
        head = self._memory.exactly(address + 16, 8)
        if head is None:
            return None
        (signed,), (tag,) = struct.unpack("<q", head), struct.unpack("<Q", head)
        if self._has_tags:
            count, negative = tag >> 3, tag & 3 == 2
            if tag & 3 == 1:
                return 0
        else:
            count, negative = abs(signed), signed < 0
        if count > _MOST_DIGITS:
            return None
        digits = self._memory.exactly(address + 24, 4 * count)
        if digits is None:
            return None
        value = 0
        for at in range(count):
            value |= int.from_bytes(digits[4 * at : 4 * at + 4], "little") << (_DIGIT * at)
        return -value if negative else value

    def _unpacked(self, address: int, code: str) -> float | None:
        data = self._memory.exactly(address, struct.calcsize("<" + code))
        if data is None:
            return None
        value: float = struct.unpack("<" + code, data)[0]
        return value

    def _sequence(self, name: str, address: int, kind: Type) -> Argument:
        items = self.items(address, kind)
        size = self._memory.u64(address + 16)
        if items is None or size is None:
            return Argument(name=name, type=kind.name)
        kinds = [self.type_of(one) for one in items]
        same = kinds[0].name if kinds and kinds[0] is not None and all(one == kinds[0] for one in kinds) else None
        unusual: tuple[Unusual, ...] = ("empty",) if not size else ()
        value = None
        if same == "int":
            numbers = [self._int(one) for one in items]
            known = [one for one in numbers if one is not None]
            unusual = _odd(known)
            if size <= _SHOWN_ITEMS and len(known) == size:
                value = "[" + ", ".join(map(str, known)) + "]"
        return Argument(name=name, type=kind.name, dtype=same, shape=(size,), value=value, unusual=unusual)

    def _array(self, name: str, address: int, kind: Type) -> Argument | None:
        """``PyArrayObject_fields``."""
        head = self._memory.exactly(address + 16, 56)
        if head is None:
            return None
        data, rank, _pad, dimensions, _strides, _base, dtype, flags = struct.unpack_from("<QiiQQQQi", head)
        if not 0 <= rank <= _MOST_DIMENSIONS:
            return None
        sizes = self._memory.exactly(dimensions, 8 * rank) if rank else b""
        number = self._memory.u32(dtype + 28)
        if sizes is None or number is None:
            return None
        shape = struct.unpack(f"<{rank}q", sizes)
        if any(not 0 <= one < _LARGEST_SIZE for one in shape):
            return None
        known = _NUMPY_DTYPES[number] if number < len(_NUMPY_DTYPES) else None
        unusual: list[Unusual] = list(_odd_shape(shape))
        if not flags & (_C_CONTIGUOUS | _F_CONTIGUOUS):
            unusual.append("not-contiguous")
        code = _NUMBERS.get(f"numpy.{known}")
        value = self._unpacked(data, code) if math.prod(shape) == 1 and code else None
        seen = _number(name, kind.name, value) if value is not None else None
        return Argument(
            name=name,
            type=kind.name,
            dtype=known,
            shape=shape,
            value=seen.value if seen else None,
            unusual=(*unusual, *(seen.unusual if seen else ())),
        )

    def _of_torch(self, name: str, address: int) -> Argument:
        found = torch_tensor.tensor_of(self._memory, address)
        if found is None:
            return Argument(name=name, type="torch.Tensor")
        tensor, is_contiguous = found
        odd: tuple[Unusual, ...] = () if is_contiguous else ("not-contiguous",)
        unusual = (*_odd_shape(tensor.shape), *odd)
        return Argument(name=name, type="torch.Tensor", dtype=tensor.dtype, shape=tensor.shape, unusual=unusual)

    def _of_tensorflow(self, address: int) -> str | None:
        """The name of a ``tf.DType``: its object points to the number."""
        number = self._memory.u64(self._memory.u64(address + 16) or 0)
        return DTYPES[number & 0xFFFFFFFF] if number is not None and 0 < number & 0xFFFFFFFF < len(DTYPES) else None

    def _of_ctypes(self, name: str, address: int, kind: Type) -> Argument:
        at = self._memory.u64(address + 16)  # CDataObject.b_ptr
        if at and (kind.is_a(*_POINTERS) or kind.is_a(*_POINTERS_THAT_ARE_SIMPLE)):
            pointer = self._memory.u64(at)
            if pointer == 0:
                return Argument(name=name, type=kind.name, value="NULL", unusual=("null",))
            return Argument(name=name, type=kind.name)
        code = _C_NUMBERS.get(kind.name)
        return _number(name, kind.name, self._unpacked(at, code) if at and code else None)


def _number(name: str, kind: str, value: float | None, *, is_bool: bool = False) -> Argument:
    if value is None:
        return Argument(name=name, type=kind)
    if is_bool or isinstance(value, bool):
        return Argument(name=name, type=kind, value=str(bool(value)))
    text = str(value) if isinstance(value, int) else f"{value:.6g}"
    return Argument(name=name, type=kind, value=text, unusual=_odd([value]))


def _odd(values: Sequence[float]) -> tuple[Unusual, ...]:
    """Of floats only NaN: a negative one is usual."""
    found: list[Unusual] = []
    whole = [one for one in values if isinstance(one, int)]
    if any(math.isnan(one) for one in values):
        found.append("nan")
    if any(one < 0 for one in whole):
        found.append("negative")
    if any(not -_HUGE <= one < _HUGE for one in whole):
        found.append("huge")
    return tuple(found)


def _odd_shape(shape: tuple[int, ...]) -> tuple[Unusual, ...]:
    count = math.prod(shape)
    return ("empty",) if not count else ("huge",) if count >= _HUGE else ()


def of_tensor(name: str, tensor: Tensor, kind: str = "EagerTensor") -> Argument:
    """A tensor of TensorFlow as the argument ``name``; ``kind`` is its type."""
    alone = _number(name, kind, tensor.values[0]) if len(tensor.values) == 1 else None
    return Argument(
        name=name,
        type=kind,
        dtype=tensor.dtype,
        shape=tensor.shape,
        value=alone.value if alone is not None else None,
        unusual=(*_odd_shape(tensor.shape), *_odd(tensor.values)),
    )
