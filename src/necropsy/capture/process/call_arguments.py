"""The call into a library below which a process died, and its arguments, from the variables of the Python frames."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Sequence

import msgspec

from necropsy import redact
from necropsy.capture.process import c_function, ctypes_call
from necropsy.capture.process.cpython_frames import Standing
from necropsy.capture.process.memory import Memory
from necropsy.capture.process.object_summaries import ObjectReader
from necropsy.model import Argument, Call, Frame, is_typed
from necropsy.reproducer import RAW_OPS

MOST_FRAMES = 64
_MOST_PARAMETERS = 64
_GENERATED = re.compile(r"(?:^|/)gen_\w+\.py$|(?:^|/)ops/\w+_ops_gen\.py$")
_PACKAGE = re.compile(r"[/\\](?:site|dist)-packages[/\\](?P<name>\w+)")
_PLACED = re.compile(r"/(?:site|dist)-packages/(?P<path>[\w/]+)\.py$")
_STANDARD = re.compile(r"[/\\]lib(?:64)?[/\\]python3\.\d+[/\\](?P<name>\w+)|^<frozen ")
_CTYPES = re.compile(r"[/\\]python3\.\d+[/\\]ctypes[/\\]__init__\.py$")
_NOT_THE_CALL = {"self", "cls", "name", "ctx", "_ctx", "args", "kwargs", "kwds"}
_NOT_ASKED_FOR = {"converted_call"}
"""Functions that no user calls: autograph's stand-in for every call in a function that it converts."""
_FALLBACK = "_eager_fallback"
_INNERMOST = 4
_INTERPRETER = re.compile(r"(?:lib)?python\d")


class CallReader:
    """Reads the call of one thread."""

    def __init__(self, memory: Memory, frames: Sequence[Standing]) -> None:
        self._memory, self._frames = memory, frames
        # 3.12 was the first with tagged integers, and the first whose frames begin with their code.
        tagged = bool(frames) and frames[0].layout.code == 0
        self._objects = ObjectReader(memory, tagged=tagged)

    def of_op(self, op: str, wrapper: str) -> Call | None:
        """The call of TensorFlow's operation ``op`` by its generated function ``wrapper``; None where none ran it."""
        for frame in self._frames[:_INNERMOST]:
            generated = frame.source is not None and (_GENERATED.search(frame.source) or frame.source == "<string>")
            if not generated or frame.function is None or frame.function.removesuffix(_FALLBACK) != wrapper:
                continue
            module = RAW_OPS if frame.source != "<string>" else None
            return self._call(frame, op, "tensorflow", module)
        return None

    def into_package(self) -> Call | None:
        """The innermost call from a line of the program itself into a function of an installed package."""
        inner: Standing | None = None
        for frame in self._frames:
            if library_of(frame) is None:
                break
            inner = frame
        else:
            return None
        library = library_of(inner) if inner is not None else None
        if inner is None or inner.function is None or not library or inner.function in _NOT_ASKED_FOR:
            return None
        return self._call(inner, inner.function.rpartition(".<locals>.")[2], library, _module_of(inner))

    def through_ctypes(self, function: str) -> Call | None:
        """The call of the C function ``function`` that the program's own line makes through ctypes."""
        if not self._frames or library_of(self._frames[0]) is not None:
            return None
        return ctypes_call.call_of(self._memory, self._objects, self._frames[0], function)

    def into_c(self, called: Sequence[c_function.Code], module_of: Callable[[int], str | None]) -> Call | None:
        """The call of a C function that the program's own line makes; arguments as ``c_function.call_of`` has them."""
        if not self._frames or library_of(self._frames[0]) is not None:
            return None
        found = c_function.call_of(self._memory, self._objects, self._frames[0], called, module_of)
        if found is None:
            return None
        package = _PACKAGE.search(found.library or "")
        library = package["name"] if package is not None else (found.library or "").rpartition("/")[2].split(".")[0]
        library = "python" if _INTERPRETER.match(library) else library
        return msgspec.structs.replace(found, library=library or None, arguments=tuple(map(_masked, found.arguments)))

    def _call(self, frame: Standing, function: str, library: str, module: str | None) -> Call | None:
        found = tuple(self._parameters(frame, library))
        where = f"the local variables of {frame.function}" + (f", line {frame.line}" if frame.line else "")
        if not found:
            return None
        return Call(function=function, library=library, module=module, arguments=found, where=where)

    def _parameters(self, frame: Standing, library: str | None) -> Iterator[Argument]:
        for name, address in variables(self._memory, self._objects, frame):
            if name in _NOT_THE_CALL or name.startswith("_"):
                continue
            found = self._objects.argument(name, address)
            if found is None:
                continue
            found = _masked(found)
            yield _as_address(found) if library == "ctypes" else found


def _masked(one: Argument) -> Argument:
    if one.value is not None and redact.variables({one.name: one.value})[one.name] != one.value:
        return Argument(name=one.name, type=one.type)
    return one


def _as_address(one: Argument) -> Argument:
    """A number that ctypes takes for an address: it is not a large number, and 0 is NULL."""
    if one.type == "int" and one.name in {"ptr", "address"}:
        null = one.value == "0"
        return Argument(name=one.name, type=one.type, value="NULL" if null else None, unusual=("null",) if null else ())
    return one


def _module_of(frame: Standing) -> str | None:
    """The module of a top-level function, by its file's path; None of a method or an inner function."""
    found = _PLACED.search(frame.source or "")
    # Before 3.11 a frame knows the name of its function alone, not the class that it is in.
    if found is None or frame.layout.counts or not (frame.function or "").isidentifier():
        return None
    return found["path"].replace("/", ".").removesuffix(".__init__")


def library_of(frame: Standing | Frame) -> str | None:
    """The package that a frame's file belongs to, ``""`` for the standard library; None for what is neither."""
    source = frame.source or "<"
    found = _PACKAGE.search(source)
    if found is not None:
        return found["name"]
    if _CTYPES.search(source):
        return "ctypes"
    typed = frame.function == "<module>" and is_typed(source)
    return "" if (_STANDARD.search(source) or source.startswith("<")) and not typed else None


def variables(
    memory: Memory, objects: ObjectReader, frame: Standing, *, parameters_only: bool = True
) -> Iterator[tuple[str, int]]:
    """The parameters of a frame, or all its local variables: their names, and the addresses of what they hold."""
    layout = frame.layout
    counts, names = memory.exactly(frame.code + layout.parameters, 12), memory.u64(frame.code + layout.local_names)
    kind = objects.type_of(names) if names else None
    if counts is None or not names or kind is None or kind.name != "tuple":
        return
    positional, _, keyword_only = struct.unpack("<iii", counts)
    each = objects.items(names, kind)
    if each is None or min(positional, keyword_only) < 0:
        return
    count = positional + keyword_only if parameters_only else len(each)
    if not 0 < count <= min(len(each), _MOST_PARAMETERS):
        return
    data = memory.exactly(frame.address + layout.variables, 8 * count)
    if data is None:
        return
    for at, (address,) in enumerate(struct.iter_unpack("<Q", data)):
        name = objects.text(each[at])
        if name and address:
            yield name, address
