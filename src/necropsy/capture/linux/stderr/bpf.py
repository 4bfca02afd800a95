"""``bpf(2)``, and an assembler for its programs. Numbers from the kernel's ``include/uapi/linux/bpf.h``."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass

ARRAY, HASH_OF_MAPS, TASK_STORAGE = 2, 13, 29
"""Types of maps."""
NO_PREALLOC, MMAPABLE = 1 << 0, 1 << 10
RAW_TRACEPOINT = 17
"""Type of a program."""
EQ, NE, LE, SLT, SLE = 0x10, 0x50, 0xB0, 0xC0, 0xD0
"""Conditions of jumps."""
FRAME = 10
"""The register that points to the end of the program's stack."""
INSTRUCTION = struct.Struct("<BBhi")
_NAME = 16

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long
_BPF = 321
_MAP_CREATE, _MAP_LOOKUP, _MAP_UPDATE, _MAP_DELETE, _MAP_NEXT_KEY, _PROG_LOAD = 0, 1, 2, 3, 4, 5
_PROG_BY_ID, _MAP_BY_ID, _INFO, _RAW_TRACEPOINT_OPEN, _BTF_LOAD = 13, 14, 15, 17, 18
_MAP_DELETE_BATCH, _LINK_BY_ID, _LINK_NEXT_ID = 27, 30, 31
_ATTRIBUTES = 128
_MOST_INFO = 256


class Assembler:
    """The few instructions that are needed."""

    def __init__(self) -> None:
        self._code: list[tuple[int, int, int | str, int]] = []
        self._labels: dict[str, int] = {}

    def add(self, code: int, to: int = 0, by: int = 0, offset: int | str = 0, value: int = 0) -> None:
        """One instruction; ``offset``: a number, or the label to jump to."""
        self._code.append((code, to | by << 4, offset, value))

    def label(self, name: str) -> None:
        """The instruction that follows can be jumped to by this name."""
        self._labels[name] = len(self._code)

    def copy(self, to: int, by: int) -> None:
        """``to = by``."""
        self.add(0xBF, to, by)

    def load(self, to: int, value: int) -> None:
        """``to = a number of 32 bits``."""
        self.add(0xB7, to, value=value)

    def load_map(self, to: int, descriptor: int) -> None:
        """``to = the map``."""
        self.add(0x18, to, 1, value=descriptor)  # BPF_PSEUDO_MAP_FD
        self.add(0x00)

    def plus(self, to: int, value: int) -> None:
        """``to += a number``."""
        self.add(0x07, to, value=value)

    def plus_register(self, to: int, by: int) -> None:
        """``to += by``."""
        self.add(0x0F, to, by)

    def minus_register(self, to: int, by: int) -> None:
        """``to -= by``."""
        self.add(0x1F, to, by)

    def read(self, to: int, by: int, offset: int) -> None:
        """``to = the 8 bytes at by + offset``."""
        self.add(0x79, to, by, offset)

    def store(self, to: int, offset: int, by: int) -> None:
        """The 8 bytes at to + offset = by."""
        self.add(0x7B, to, by, offset)

    def jump(self, label: str) -> None:
        """Go on at the label."""
        self.add(0x05, offset=label)

    def if_value(self, how: int, register: int, value: int, label: str) -> None:
        """Go on at the label where the register compares so with a number."""
        self.add(0x05 | how, register, offset=label, value=value)

    def if_register(self, how: int, register: int, other: int, label: str) -> None:
        """Go on at the label where the two registers compare so."""
        self.add(0x0D | how, register, other, label)

    def call(self, helper: int) -> None:
        """r0 = helper(r1, ..., r5)."""
        self.add(0x85, value=helper)

    def bytes(self) -> bytes:
        """The program."""
        return b"".join(
            INSTRUCTION.pack(
                code, registers, self._labels[offset] - place - 1 if isinstance(offset, str) else offset, value
            )
            for place, (code, registers, offset, value) in enumerate(self._code)
        )


def _signed(value: int) -> int:
    return value - (1 << 32) if value >= 1 << 31 else value


def _call(command: int, *fields: tuple[str, int | bytes]) -> tuple[int, bytes]:
    """The result, and the attributes as the kernel left them. Raises OSError where it refuses."""
    data = struct.pack("<" + "".join(kind for kind, _ in fields), *(value for _, value in fields))
    attributes = ctypes.create_string_buffer(data, _ATTRIBUTES)
    got = _LIBC.syscall(ctypes.c_long(_BPF), ctypes.c_long(command), attributes, ctypes.c_ulong(_ATTRIBUTES))
    if got < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(got), attributes.raw


def _memory(data: bytes) -> tuple[ctypes.Array[ctypes.c_char], int]:
    buffer = ctypes.create_string_buffer(data, len(data))
    return buffer, ctypes.addressof(buffer)


def create_map(
    kind: int, sizes: tuple[int, int], entries: int, flags: int, *, name: str, inner: int = 0, types: int = 0
) -> int:
    """A map's descriptor. ``sizes``: of key and value; ``inner``: a map like those that it holds.

    ``types``: of ``load_integer_types``, for a key of 32 bits and a value of 64. Raises OSError without memory or
    permission, or for a kind that this kernel does not know.
    """
    return _call(
        _MAP_CREATE,
        *(("I", number) for number in (kind, *sizes, entries, flags, inner, 0)),
        (f"{_NAME}s", name.encode()),
        *(("I", number) for number in (0, types, *((1, 2) if types else (0, 0)))),
    )[0]


def load_integer_types() -> int:
    """A descriptor of type information with two types: 1 has 32 bits, 2 has 64. Some maps need types.

    Raises OSError where the kernel refuses.
    """
    strings = b"\0int\0long\0"
    types = b"".join(
        struct.pack("<IIII", strings.index(name), 1 << 24, size, 8 * size) for name, size in ((b"int", 4), (b"long", 8))
    )
    header = struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(types), len(types), len(strings))
    blob = header + types + strings
    _kept, address = _memory(blob)
    return _call(_BTF_LOAD, ("Q", address), ("Q", 0), ("I", len(blob)))[0]


def lookup(descriptor: int, key: bytes, size: int) -> bytes:
    """One entry of a map whose values have ``size`` bytes. Raises OSError where there is none."""
    kept, value = _memory(key), ctypes.create_string_buffer(size)
    _call(_MAP_LOOKUP, ("I", descriptor), ("I", 0), ("Q", kept[1]), ("Q", ctypes.addressof(value)), ("Q", 0))
    return value.raw


def update(descriptor: int, key: bytes, value: bytes, *, only_new: bool = False) -> None:
    """Set one entry of a map. Raises OSError without memory or room, or EEXIST for ``only_new``."""
    kept = _memory(key), _memory(value)
    _call(_MAP_UPDATE, ("I", descriptor), ("I", 0), ("Q", kept[0][1]), ("Q", kept[1][1]), ("Q", only_new))


def delete(descriptor: int, key: bytes) -> None:
    """Remove one entry of a map. Raises OSError where there is none."""
    _kept, address = _memory(key)
    _call(_MAP_DELETE, ("I", descriptor), ("I", 0), ("Q", address))


def delete_all(descriptor: int, unwanted: list[bytes]) -> None:
    """Remove these entries of a map, those that are there. At once where the kernel can: it waits after each call."""
    kept = _memory(b"".join(unwanted))
    many = (("I", len(unwanted)), ("I", descriptor), ("Q", 0), ("Q", 0))
    try:
        _call(_MAP_DELETE_BATCH, ("Q", 0), ("Q", 0), ("Q", kept[1]), ("Q", 0), *many)
    except OSError:
        for key in unwanted:
            with contextlib.suppress(OSError):
                delete(descriptor, key)


def keys(descriptor: int, size: int) -> list[bytes]:
    """The keys of a map."""
    found: list[bytes] = []
    following = ctypes.create_string_buffer(size)
    while True:
        kept = _memory(found[-1]) if found else (None, 0)
        try:
            _call(_MAP_NEXT_KEY, ("I", descriptor), ("I", 0), ("Q", kept[1]), ("Q", ctypes.addressof(following)))
        except OSError:
            return found
        if following.raw in found:  # one was removed meanwhile, and the kernel began anew
            return found
        found.append(following.raw)


def load_program(code: bytes, license_: bytes, name: str) -> int:
    """A program's descriptor. Raises OSError where the kernel does not accept it."""
    instructions, terms = _memory(code), _memory(license_ + b"\0")
    return _call(
        _PROG_LOAD,
        *(("I", RAW_TRACEPOINT), ("I", len(code) // INSTRUCTION.size), ("Q", instructions[1]), ("Q", terms[1])),
        *(("I", 0), ("I", 0), ("Q", 0), ("I", 0), ("I", 0), (f"{_NAME}s", name.encode())),
    )[0]


def attach(program: int, tracepoint: str) -> int:
    """A descriptor of the link; the program runs as long as one for it is open. Raises OSError where refused."""
    _kept, address = _memory(tracepoint.encode() + b"\0")
    return _call(_RAW_TRACEPOINT_OPEN, ("Q", address), ("I", program))[0]


def _info(descriptor: int, given: bytes = b"") -> bytes:
    buffer = ctypes.create_string_buffer(given, _MOST_INFO)
    _call(_INFO, ("I", descriptor), ("I", _MOST_INFO), ("Q", ctypes.addressof(buffer)))
    return buffer.raw


def map_type(descriptor: int) -> int:
    """Which kind of map it is."""
    return int(struct.unpack_from("<I", _info(descriptor))[0])


def map_id(descriptor: int) -> int:
    """The map's number, unique on the machine; it is not used again soon."""
    return int(struct.unpack_from("<I", _info(descriptor), 4)[0])


def map_by_id(number: int) -> int:
    """A descriptor of the map with this number. Raises OSError: ENOENT if gone, EPERM without CAP_SYS_ADMIN."""
    return _call(_MAP_BY_ID, ("I", number), ("I", 0), ("I", 0))[0]


def has_map(number: int) -> bool:
    """There is, as far as we may know, a map with this number."""
    try:
        os.close(map_by_id(number))
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return True


@dataclass(frozen=True)
class Attached:
    """A program that is attached somewhere: an open descriptor of its link, and what it is."""

    link: int
    name: str
    uid: int
    maps: tuple[int, ...]
    """Their numbers."""


def attached() -> Iterator[Attached]:
    """The programs on raw tracepoints, the oldest link first; the caller closes what it does not keep.

    Raises OSError: EPERM without CAP_SYS_ADMIN.
    """
    number = 0
    while True:
        try:
            _, attributes = _call(_LINK_NEXT_ID, ("I", number), ("I", 0), ("I", 0))
        except FileNotFoundError:
            return
        number = int(struct.unpack_from("<I", attributes, 4)[0])
        try:
            link = _call(_LINK_BY_ID, ("I", number), ("I", 0), ("I", 0))[0]
        except OSError:  # it has just ended
            continue
        found = _described(link)
        if found is None:
            os.close(link)
        else:
            yield found


def _described(link: int) -> Attached | None:
    try:
        kind, _, number = struct.unpack_from("<III", _info(link))
        if kind != 1:  # BPF_LINK_TYPE_RAW_TRACEPOINT
            return None
        program = _call(_PROG_BY_ID, ("I", number), ("I", 0), ("I", 0))[0]
    except OSError:
        return None
    try:
        numbers = (ctypes.c_uint32 * 8)()
        given = struct.pack("<52xIQ", len(numbers), ctypes.addressof(numbers))
        info = _info(program, given)
    except OSError:
        return None
    finally:
        os.close(program)
    uid, many = struct.unpack_from("<II", info, 48)
    name = info[64 : 64 + _NAME].split(b"\0")[0].decode("ascii", "replace")
    return Attached(link, name, uid, tuple(numbers[: min(many, len(numbers))]))
