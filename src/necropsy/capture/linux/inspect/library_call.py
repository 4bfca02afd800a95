"""The call that was made: of the operation that ran, else into a package, by the memory of the Python frames."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from necropsy.capture.linux.inspect.framework_op import snake_case
from necropsy.capture.linux.inspect.graph_node import NodeReader
from necropsy.capture.linux.inspect.interpreter import LinuxFrameReader
from necropsy.capture.linux.inspect.memory_map import MemoryMap
from necropsy.capture.linux.inspect.modules import MappedFiles
from necropsy.capture.linux.inspect.op_kernel import IN_KERNEL, IN_MEMORY, KernelReader
from necropsy.capture.process import autograph, ctypes_call
from necropsy.capture.process.c_function import Code
from necropsy.capture.process.call_arguments import MOST_FRAMES, CallReader, library_of
from necropsy.capture.process.memory import Memory
from necropsy.capture.process.python_stacks import EVALUATOR, PythonStackError
from necropsy.model import Address, Call, Crash, Frame, NodeLine, Operation, Thread

_LONGEST_SEARCH_S = 0.3
_INNERMOST = 64
_HELPERS = re.compile(
    r"_?PyObject_(?:Vectorcall\w*|MakeTpCall)|cfunction_(?:vectorcall_\w+|call)(?:\.\w+)*"
    r"|method_vectorcall\w*(?:\.\w+)*|_PyCFunction\w*|instancemethod_call|call_function"
)
"""What stands between the evaluator and a C function that it calls; not where ``f(*arguments)`` is called."""


def with_origins(
    threads: tuple[Thread, ...], memory: Memory, files: MappedFiles, pointers: Mapping[int, int], deadline: float
) -> tuple[Thread, ...]:
    """The threads, with the user's lines in the place of autograph's; ``deadline``: monotonic, in seconds.

    Raises PythonStackError where the interpreter's objects cannot be read.
    """
    reader = LinuxFrameReader(memory, files)
    told: list[Thread] = []
    for thread in threads:
        generated = any(autograph.GENERATED in (one.source or "") for one in thread.python or ())
        if thread.python is not None and thread.tid is not None and generated and time.monotonic() <= deadline:
            standing = reader.standing(thread.tid, pointers, MOST_FRAMES)
            python = autograph.with_origins(memory, standing, thread.python, deadline)
            thread = msgspec.structs.replace(thread, python=python)  # noqa: PLW2901 - the same thread, told better
        told.append(thread)
    return tuple(told)


def with_lines(
    crash: Crash, memory: Memory, maps: MemoryMap, files: MappedFiles, pointers: Mapping[int, int]
) -> Operation | None:
    """The operation, with the lines that put its node into a graph. Raises PythonStackError as ``with_origins``."""
    operation = crash.operation
    op = operation.op if operation is not None else None
    made = crash.call
    if operation is None or op is None or operation.how != IN_MEMORY:
        return operation
    if made is None or not (made.where or "").startswith(IN_KERNEL):
        return operation  # the op ran eagerly: the graph may have another of the same name
    node = operation.node or op
    thread = crash.crashed_thread
    tid = thread.tid if thread is not None and thread.python else crash.pid
    standing = LinuxFrameReader(memory, files).standing(tid or 0, pointers, MOST_FRAMES)
    nodes = NodeReader(memory, maps, KernelReader(memory, maps, files), standing, time.monotonic() + _LONGEST_SEARCH_S)
    own = (one for one in nodes.origin(node, op) if library_of(one) is None)
    lines = tuple(NodeLine(function=one.function, source=one.source, line=one.line) for one in own)
    return msgspec.structs.replace(operation, python=lines or None)


def of(
    crash: Crash, memory: Memory, files: MappedFiles, pointers: Mapping[int, int], kernel: Call | None = None
) -> Call | None:
    """The call into a library that ``crash`` died in, or None.

    ``pointers``: thread pointer -> id of the thread. ``kernel``: the operation's inputs, by the memory of its kernel,
    used where Python frames do not show more.
    """
    try:
        return _by_python(crash, memory, files, pointers) or kernel
    except PythonStackError:
        return kernel


def _by_python(crash: Crash, memory: Memory, files: MappedFiles, pointers: Mapping[int, int]) -> Call | None:
    thread = crash.crashed_thread
    if thread is None or thread.tid is None:
        return None
    op = crash.operation.op if crash.operation and crash.operation.framework == "tensorflow" else None
    tid = thread.tid
    if not thread.python:
        # Work on a pool's thread was asked for by a Python thread that waits, mostly the main one.
        if op is None or crash.pid is None:
            return None
        tid = crash.pid
    frames = LinuxFrameReader(memory, files).standing(tid, pointers, MOST_FRAMES)
    reader = CallReader(memory, frames)
    if op is not None:
        return reader.of_op(op, snake_case(op))
    package = reader.into_package()
    if package is not None:
        return package
    foreign = ctypes_call.function_called(thread.frames or ())
    if foreign is not None:
        return reader.through_ctypes(foreign)
    return reader.into_c(tuple(_called(thread.frames or (), files)), lambda at: _path_at(files, at))


def _path_at(files: MappedFiles, address: int) -> str | None:
    file = files.at(address)
    return file.path if file is not None else None


def _called(frames: Sequence[Frame], files: MappedFiles) -> Iterator[Code]:
    """The functions below the innermost evaluator of Python, from the one that it called inwards."""
    last = next((at for at, one in enumerate(frames[:_INNERMOST]) if one.function == EVALUATOR), 0)
    inner = frames[:last]
    if any(one.found_by in {"scan", "text"} for one in inner):
        return
    through = True
    for frame in reversed(inner):
        through = through and bool(_HELPERS.fullmatch(frame.function or ""))
        at = frame.address if frame.index == 0 or frame.address is None else Address(frame.address - 1)
        known = files.function(at) if at is not None and not through else None
        if known is not None:
            yield Code(known[0], _path_at(files, known[0]))
