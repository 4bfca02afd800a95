"""The arguments of a C function that a line of Python calls directly: a builtin, NumPy's, pybind11's, Cython's.

CPython 3.11 to 3.13 keep callable and arguments on the evaluation stack of the calling frame until the call returns.
Above the top of that stack are values of earlier calls, and no field says where the top is. So a callable counts only
where its own C code is what the evaluator called: the native stack has a frame of the function that it points to, or,
where all callables of a kind have the same (NumPy's), at an instruction that calls, and no other one may fit.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from necropsy.capture.process.cpython_frames import Standing
from necropsy.capture.process.memory import Memory
from necropsy.capture.process.object_summaries import ObjectReader, Type
from necropsy.model import Argument, Call

_LARGEST_STACK = 256
_STACK_SIZE, _VARIABLES = 12, 20
"""From the number of a code object's parameters on: its greatest stack, its number of variables (4 bytes each)."""
_NEXT_TO_EVALUATOR = 3
"""Frames from the evaluator inwards of which one has to be the callable's own."""
_TYPE_CALL, _TYPE_VECTORCALL = 128, 56
_CALLS = {"3.11": {171, 22}, "3.12": {171}, "3.13": {53}}
"""``CALL``, and in 3.11 ``CALL_ADAPTIVE``: what is on the stack at other instructions may be left over."""
_DEFINITIONS = {"builtin_function_or_method": 16, "cython_function_or_method": 16, "method_descriptor": 40}
"""Where a callable has its ``PyMethodDef``."""
_SELF, _HOME = 24, 32
_WRAPPED = {"instancemethod": 16, "numpy._ArrayFunctionDispatcher": 40}
"""Where a callable has the one that it stands for."""
_UFUNC, _UFUNC_NAME = "numpy.ufunc", 56
_OF_NUMPY = re.compile(r"/_multiarray_umath\.")
"""Its ufuncs are in ``numpy`` itself."""
_NAME = re.compile(r"\w{1,80}\Z")
_RECORD_CODE, _RECORD_ARGUMENTS, _RECORD_ARGUMENT = 48, 24, 32
"""pybind11's ``function_record``: the function that unpacks the arguments, and their names."""
_CAPSULE = 16


@dataclass(frozen=True)
class Code:
    """A native function below the evaluator: where it begins, and the path of the file that it is in."""

    start: int
    module: str | None


@dataclass(frozen=True)
class _Callable:
    name: str
    module: str | None
    home: str | None = None
    """Its ``__module__``."""
    record: int | None = None


def call_of(
    memory: Memory,
    objects: ObjectReader,
    frame: Standing,
    called: Sequence[Code],
    module_of: Callable[[int], str | None],
) -> Call | None:
    """The call that ``frame``, the innermost Python frame, is in; None where it is not certain.

    ``called``: the native functions from the one that the evaluator called inwards; ``module_of``: an address's file.
    """
    if frame.layout.counts:  # before 3.11
        return None
    slots = _slots(memory, frame)
    instruction = memory.exactly(memory.u64(frame.address + frame.layout.instruction) or 0, 2)
    if not slots or instruction is None:
        return None
    is_call = instruction[0] in _CALLS[_version(frame)]
    reader = _Callables(memory, objects, called[:_NEXT_TO_EVALUATOR], module_of if is_call else None)
    after = frame.layout.null_after_callable
    found: list[tuple[_Callable, tuple[int, ...], bool]] = []
    for at, slot in enumerate(slots):
        one = reader.of(slot) if slot else None
        if one is None:
            continue
        null = at + 1 if after else at - 1
        is_method = not 0 <= null < len(slots) or slots[null] != 0
        first = at + 1 + (after or is_method)
        passed = slots[first - is_method : first + instruction[1]]
        if all(passed) and len(passed) == instruction[1] + is_method:
            found.append((one, passed, is_method))
    if len({passed for _, passed, _ in found}) != 1:
        return None
    one, passed, is_method = found[0]
    names = reader.names(one, len(passed)) or _numbered(len(passed), is_method=is_method)
    arguments = [objects.argument(name, address) for name, address in zip(names, passed, strict=True)]
    known = tuple(_passed(argument) for argument in arguments if argument is not None)
    if not known or len(known) != len(arguments):
        return None
    where = f"the evaluation stack of {frame.function}" + (f", line {frame.line}" if frame.line else "")
    return Call(function=one.name, library=one.module, module=one.home, arguments=known, where=where)


def _version(frame: Standing) -> str:
    if frame.layout.null_after_callable:
        return "3.13"
    return "3.12" if frame.layout.code == 0 else "3.11"


def _slots(memory: Memory, frame: Standing) -> tuple[int, ...]:
    counts = memory.exactly(frame.code + frame.layout.parameters, _VARIABLES + 4)
    if counts is None:
        return ()
    (size,), (variables,) = struct.unpack_from("<i", counts, _STACK_SIZE), struct.unpack_from("<i", counts, _VARIABLES)
    if not 0 < size <= _LARGEST_STACK or not 0 <= variables < 1 << 16:
        return ()
    data = memory.exactly(frame.address + frame.layout.variables + 8 * variables, 8 * size)
    return struct.unpack(f"<{size}Q", data) if data is not None else ()


def _numbered(count: int, *, is_method: bool) -> tuple[str, ...]:
    numbers = tuple(f"argument {at}" for at in range(1, count + (not is_method)))
    return ("self", *numbers) if is_method else numbers


def _passed(one: Argument) -> Argument:
    return Argument(name=one.name, type="None", value="None") if one.type == "None" else one


class _Callables:
    def __init__(
        self,
        memory: Memory,
        objects: ObjectReader,
        called: Sequence[Code],
        module_of: Callable[[int], str | None] | None,
    ) -> None:
        self._memory, self._objects, self._module_of = memory, objects, module_of
        self._called = {one.start: one for one in reversed(called)}
        self._boundary = called[0] if called else None

    def of(self, address: int) -> _Callable | None:
        """The callable at ``address``, where its code is what was called."""
        kind = self._objects.type_of(address)
        if kind is None:
            return None
        if kind.name in _DEFINITIONS:
            return self._defined(address, kind)
        wrapped = self._memory.u64(address + _WRAPPED[kind.name]) if kind.name in _WRAPPED else None
        if kind.name == "instancemethod":
            return self.of(wrapped) if wrapped else None
        if self._boundary is None or self._module_of is None:
            return None
        # The function that ``vectorcall`` names may have left no frame: its last step is another call.
        if self._boundary.module not in set(map(self._module_of, self._entries(address))):
            return None
        name = self._ufunc_name(address) if kind.is_a(_UFUNC) else self._name_of(wrapped or 0)
        home = "numpy" if kind.is_a(_UFUNC) and _OF_NUMPY.search(self._boundary.module or "") else None
        return _Callable(name, self._boundary.module, home) if name else None

    def _defined(self, address: int, kind: Type) -> _Callable | None:
        definition = self._memory.u64(address + _DEFINITIONS[kind.name]) or 0
        name, start = self._c_name(self._memory.u64(definition) or 0), self._memory.u64(definition + 8)
        code = self._called.get(start or 0)
        if name is None or code is None:
            return None
        record = self._record(address) if kind.name == "builtin_function_or_method" else None
        # All functions of a pybind11 module have the same C function: which it is, the next frame says.
        if record is not None and (self._memory.u64(record + _RECORD_CODE) or 0) not in self._called:
            return None
        return _Callable(name, code.module, self._home(address, kind), record)

    def _home(self, address: int, kind: Type) -> str | None:
        home = self._memory.u64(address + _HOME) if kind.name == "builtin_function_or_method" else None
        return self._objects.text(home) if home else None

    def _record(self, address: int) -> int | None:
        capsule = self._memory.u64(address + _SELF)
        kind = self._objects.type_of(capsule) if capsule else None
        return (
            self._memory.u64(capsule + _CAPSULE) if capsule and kind is not None and kind.name == "PyCapsule" else None
        )

    def _entries(self, address: int) -> Iterator[int]:
        """Where a call of the object begins: its type's ``tp_call``, and its own ``vectorcall``."""
        kind = self._memory.u64(address + 8) or 0
        yield self._memory.u64(kind + _TYPE_CALL) or 0
        offset = self._memory.u64(kind + _TYPE_VECTORCALL) or 0
        if 0 < offset < 1 << 12:
            yield self._memory.u64(address + offset) or 0

    def _name_of(self, address: int) -> str | None:
        kind = self._objects.type_of(address)
        if kind is None:
            return None
        if kind.name == "function":  # func_name
            return self._objects.text(self._memory.u64(address + 32) or 0)
        at = self._memory.u64(address + _DEFINITIONS[kind.name]) if kind.name in _DEFINITIONS else None
        return self._c_name(self._memory.u64(at) or 0) if at else None

    def _ufunc_name(self, address: int) -> str | None:
        return self._c_name(self._memory.u64(address + _UFUNC_NAME) or 0)

    def _c_name(self, at: int) -> str | None:
        text = self._memory.c_string(at, 100) if at else None
        return text if text and _NAME.match(text) else None

    def names(self, one: _Callable, count: int) -> tuple[str, ...] | None:
        """The names of a pybind11 function's ``count`` arguments; None where not all have one."""
        if one.record is None:
            return None
        begin, end = (self._memory.u64(one.record + _RECORD_ARGUMENTS + at) or 0 for at in (0, 8))
        if end - begin != _RECORD_ARGUMENT * count or not count:
            return None
        found = [self._c_name(self._memory.u64(at) or 0) for at in range(begin, end, _RECORD_ARGUMENT)]
        names = tuple(name for name in found if name)
        return names if len(names) == count else None
