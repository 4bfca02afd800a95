"""The arguments of a C function that Python code calls through ctypes: the values on its frame's evaluation stack.

CPython 3.11 to 3.13 keep callable and arguments on the stack of the calling frame until the call returns
(``Python/bytecodes.c``, ``CALL``). Above the top of that stack are values of earlier calls, and no field says where the
top is. So the native stack must show that the evaluator itself called a ctypes function, and only one callable may fit.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence

from necropsy.capture.process.cpython_frames import Standing
from necropsy.capture.process.memory import Memory
from necropsy.capture.process.object_summaries import ObjectReader
from necropsy.capture.process.python_stacks import EVALUATOR
from necropsy.model import Argument, Call, Frame

_CTYPES_CALL = re.compile(r"PyCFuncPtr_call(?:\.\w+)*|_ctypes_callproc(?:\.\w+)*|_call_function_pointer|ffi_call\w*")
_CTYPES_MODULE = re.compile(r"(?:^|/)(?:_ctypes[.\w-]*\.so|libffi[.\w-]*\.so[.\d]*)$")
_TUPLE_MADE = "_PyObject_MakeTpCall"
"""It copies the arguments from the stack; calls of another kind (``f(*arguments)``) do not come through it."""
_HELPERS = {_TUPLE_MADE, "PyObject_Vectorcall", "_PyObject_Vectorcall", "_PyObject_VectorcallTstate"}
_INNERMOST = 64
_LARGEST_STACK = 256
_STACK_SIZE, _VARIABLES = 12, 20
"""From the number of a code object's parameters on: its greatest stack, its number of variables (4 bytes each)."""


def function_called(frames: Sequence[Frame]) -> str | None:
    """The C function that the evaluator called through ctypes, by the native stack; None where it called none."""
    inner: Frame | None = None
    through = False
    helpers: set[str] = set()
    for frame in frames[:_INNERMOST]:
        name = frame.function or ""
        if frame.found_by in {"scan", "text"}:
            return None
        if name == EVALUATOR:
            break
        if _CTYPES_CALL.fullmatch(name) or _CTYPES_MODULE.search(frame.module or ""):
            through = True
        elif through:
            helpers.add(name)
        else:
            inner = frame
    else:
        return None
    if not through or inner is None or not helpers <= _HELPERS or _TUPLE_MADE not in helpers:
        return None
    return inner.function or (inner.module.rpartition("/")[2] if inner.module else None)


def call_of(memory: Memory, objects: ObjectReader, frame: Standing, function: str) -> Call | None:
    """The call of ``function`` that ``frame`` is in; None where its arguments are not certain."""
    layout = frame.layout
    if layout.counts:  # before 3.11
        return None
    counts = memory.exactly(frame.code + layout.parameters, _VARIABLES + 4)
    at = memory.u64(frame.address + layout.instruction)
    instruction = memory.exactly(at, 2) if at else None
    if counts is None or instruction is None:
        return None
    (size,), (variables,) = struct.unpack_from("<i", counts, _STACK_SIZE), struct.unpack_from("<i", counts, _VARIABLES)
    if not 0 < size <= _LARGEST_STACK or not 0 <= variables < 1 << 16:
        return None
    data = memory.exactly(frame.address + layout.variables + 8 * variables, 8 * size)
    slots = struct.unpack(f"<{size}Q", data) if data is not None else ()
    found = list(_fitting(objects, slots, instruction[1], null_is_after=frame.layout.null_after_callable))
    if len(found) != 1:
        return None
    arguments = [_passed(objects, number, address) for number, address in enumerate(found[0], 1)]
    known = tuple(one for one in arguments if one is not None)
    if not known or len(known) != len(arguments):
        return None
    where = f"the evaluation stack of {frame.function}" + (f", line {frame.line}" if frame.line else "")
    return Call(function=function, library="ctypes", arguments=known, where=where)


def _fitting(
    objects: ObjectReader, slots: Sequence[int], count: int, *, null_is_after: bool
) -> Iterator[tuple[int, ...]]:
    """The arguments of each ctypes function that can be the callable of a call with ``count`` of them."""
    for at, slot in enumerate(slots):
        null, first = (at + 1, at + 2) if null_is_after else (at - 1, at + 1)
        if not slot or not 0 <= null < len(slots) or slots[null] or first + count > len(slots):
            continue
        kind = objects.type_of(slot)
        if kind is not None and kind.is_a("_ctypes.CFuncPtr", "_ctypes.PyCFuncPtr"):
            yield tuple(slots[first : first + count])


def _passed(objects: ObjectReader, number: int, address: int) -> Argument | None:
    found = objects.argument(f"argument {number}", address) if address else None
    if found is not None and found.type == "None":
        return Argument(name=found.name, type="None", value="NULL", unusual=("null",))
    return found
