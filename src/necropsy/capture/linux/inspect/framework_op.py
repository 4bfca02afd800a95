"""Which operation of the framework ran: from kernel classes on the native stack, kernels in memory, Python frames."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from necropsy.capture.linux.inspect.memory_map import MemoryMap
from necropsy.capture.linux.inspect.modules import MappedFile, MappedFiles
from necropsy.capture.linux.inspect.op_kernel import IN_KERNEL, IN_MEMORY, Kernel, KernelReader
from necropsy.capture.process.deep_stack import CodeLocation
from necropsy.capture.process.memory import Memory
from necropsy.capture.process.native_stack import KernelFrame, NativeStack
from necropsy.capture.process.object_summaries import of_tensor
from necropsy.model import Call, Frame, Operation
from necropsy.reproducer import RAW_OPS

_COMPUTE = re.compile(
    r"(?P<kernel>[\w:{}<>,. *&()-]+?)::"
    r"(?:Compute(?:Async)?\(tensorflow::OpKernelContext\*|Compile\(tensorflow::XlaOpKernelContext\*)"
)
_ATEN = re.compile(r"at::_ops::(?P<op>\w+)::(?:call|redispatch)\b")
_GENERATED = re.compile(r"(?:^|/)gen_\w+\.py$|(?:^|/)ops/\w+_ops_gen\.py$")
_FAST_PATH = re.compile(
    # Up to TensorFlow 2.4, the context came in two parts.
    r'TFE_Py_FastPathExecute\(\s*_ctx(?:\._context_handle,\s*\w+\.device_name)?,\s*"(?P<op>\w+)"'
)
_EXECUTE = re.compile(r'_execute\.execute\(\s*b"(?P<op>\w+)"')
_APPLY = re.compile(r'_apply_op_helper\(\s*"(?P<op>\w+)"')
_OP_NAME = re.compile(rb"(?<=\0)[A-Z][A-Za-z0-9_>]{2,80}(?=\0)")
_IDENTIFIER = re.compile(r"[A-Z_][\w>]{1,100}\Z")
_RUNNING = re.compile(r"TFE_|\btensorflow::")
_ONEDNN = re.compile(r"^_Mkl(?:Native|Eager)?(?=[A-Z])")
"""What a rewrite to oneDNN puts before an op's name (core/graph/mkl_graph_util.h, ``GetMklNativeOpName``)."""
_TFLITE = re.compile(r"tflite::ops::(?:builtin|custom)::(?P<op>\w+)::")
_SOURCE_LINES = 8
_MOST_KERNELS = 4
"""Classes with a ``Compute`` on one stack that are tried: not each of them is a kernel's."""
_GRAPH = re.compile(r"ExecutorState|\btensorflow::data::")
_RUN_OTHERS = re.compile(r"__|(?:Stateful)?PartitionedCall$|IteratorGetNext|(?:Reduce|Map|ParallelMap)\w*Dataset")
"""Ops that have graphs run: what died on another thread is most likely an op of theirs."""
_STACK_SEARCHED = 32 << 10
_FRAME_SEARCHED = 4 << 10
_INNER_FRAMES = 1024
_CALLERS = 12
_LARGEST_LIBRARY = 256 << 20


def kernel_frame(unwound: NativeStack | None) -> KernelFrame | None:
    """The innermost ``X::Compute(tensorflow::OpKernelContext*)``, or an XLA kernel's ``Compile``: of class X."""
    return next(_kernel_frames(unwound), None) if unwound is not None else None


def _kernel_frames(unwound: NativeStack) -> Iterator[KernelFrame]:
    """One of each class, the innermost first."""
    seen: set[str] = set()
    for place in unwound.distinct():
        match = _COMPUTE.search(place.function or "")
        kernel = _class_name(match["kernel"]) if match is not None else None
        if kernel is not None and kernel not in seen and len(seen) < _MOST_KERNELS:
            seen.add(kernel)
            yield KernelFrame(kernel, *_around(unwound, place))


def _around(unwound: NativeStack, place: CodeLocation) -> tuple[int, int]:
    """The frame at ``place`` and the callers of it, or about where they are."""
    index, pointer = unwound.first_at(place)
    pointers = unwound.pointers
    near = (max(index - 1, 0), min(index + 1, len(unwound) - 1), min(index + _CALLERS, len(unwound) - 1))
    if not all(map(pointers.keeps, near)):
        return pointer, pointer + _STACK_SEARCHED
    below, caller, outer = (pointers[at] for at in near)
    # A large frame's low end may not even be mapped; the kernel's address is spilled near its high end.
    return max(below, caller - _FRAME_SEARCHED), outer


def _functions(unwound: NativeStack) -> Iterator[str]:
    return (place.function for place in unwound.distinct() if place.function is not None)


def _class_name(text: str) -> str:
    """The class alone: a lambda's frame begins with the function that holds it, a template's with its return type."""
    depth = 0
    for index in range(len(text) - 1, -1, -1):
        letter = text[index]
        depth += (letter in ">)}") - (letter in "<({")
        if depth == 0 and letter == " ":
            return text[index + 1 :]
    return text


class Finder:
    """Names the operation of one process."""

    def __init__(self, memory: Memory, maps: MemoryMap, files: MappedFiles) -> None:
        self._files = files
        self._kernels = KernelReader(memory, maps, files)
        self.call: Call | None = None
        """What the kernel that was found was given; ``find`` fills it in."""

    def find(
        self,
        crashed: NativeStack | None,
        others: Iterable[KernelFrame],
        python: Sequence[Sequence[Frame]],
        *,
        own: bool = True,
    ) -> Operation | None:
        """The operation that the crashed thread ran.

        ``others``: kernels of other threads: one's work may be spread over a pool. ``python``: frames of the crashed
        thread (``own``; else of one that waits for it) first, innermost first.
        """
        found = list(_kernel_frames(crashed)) if crashed is not None else []
        if not found:
            named = self._by_name(crashed)
            if named is not None:
                return named
            op, how = self._from_python(python, own=own)
            running = crashed is not None and any(_RUNNING.search(name) for name in _functions(crashed))
            # An exception has left the op's frames, but the line of Python that runs it is still there.
            running = running or (crashed is not None and any(_runs_op(frames) for frames in python))
            return Operation(op=op, framework="tensorflow", how=how) if op and running else None
        classes = {one.kernel for one in found}
        for one in (*found, *(other for other in others if other.kernel in classes)):
            kernel = self._kernels.on_stack(one.low, one.high, one.kernel)
            if kernel is not None:
                return self._of_kernel(kernel, one)
        in_graph = crashed is not None and any(_GRAPH.search(name) for name in _functions(crashed))
        op, how = (None, None) if in_graph else self._from_python(python, own=own)
        how = how or "the kernel's class on the native stack"
        return Operation(op=op, kernel=found[0].kernel, framework="tensorflow", how=how)

    def _of_kernel(self, kernel: Kernel, found: KernelFrame) -> Operation:
        op = _ONEDNN.sub("", kernel.op)
        node = kernel.node if kernel.node != op else None
        given = self._kernels.inputs(kernel, found.low, found.high) or ()
        arguments = tuple(of_tensor(name, tensor, "Tensor") for name, tensor in given)
        if arguments:
            attributes = self._kernels.attributes(kernel)
            where = IN_KERNEL + (f", node {node}" if node else "")
            is_whole = kernel.is_own and attributes is not None and not op.startswith("_")
            self.call = Call(
                function=op,
                library="tensorflow",
                module=RAW_OPS if is_whole else None,
                arguments=(*arguments, *(attributes or ())),
                where=where,
            )
        return Operation(op=op, kernel=found.kernel, node=node, framework="tensorflow", how=IN_MEMORY)

    @staticmethod
    def _by_name(crashed: NativeStack | None) -> Operation | None:
        if crashed is None:
            return None
        for index, place in enumerate(crashed.places.first(_INNER_FRAMES)):
            # Frames that were guessed may be left over from an op that ended well.
            if place.function is None or crashed.recovered.get(index) == "scan":
                continue
            if match := _ATEN.search(place.function):
                return Operation(op=f"aten::{match['op']}", framework="torch", how="the dispatcher's native frame")
            if match := _TFLITE.search(place.function):
                return Operation(op=match["op"], framework="tflite", how="the kernel's native frame")
        return None

    # ------------------------------------------------------------ from Python

    def _from_python(self, python: Sequence[Sequence[Frame]], *, own: bool) -> tuple[str | None, str | None]:
        for frames in python:
            for frame in frames[:12]:
                op = _from_wrapper(frame) or _from_locals(frame)
                if op is not None and not own and _RUN_OTHERS.match(op):
                    return None, None
                if op is not None:
                    return op, f"the Python frame {frame.function}, line {frame.line} of {frame.source}"
                loaded = self._from_loaded(frame)
                if loaded is not None:
                    op, library = loaded
                    return op, f"the Python frame {frame.function} and the op names in {library.name}"
        return None, None

    def _from_loaded(self, frame: Frame) -> tuple[str, MappedFile] | None:
        """An op of ``tf.load_op_library``: its wrapper has no file, its name is the op's in snake case."""
        if frame.function is None or frame.source is None or frame.source != "<string>":
            return None
        wanted = frame.function.removesuffix("_eager_fallback")
        found: list[tuple[str, MappedFile]] = []
        for file in self._files.files:
            if not _is_op_library(file):
                continue
            found += [(name, file) for name in sorted(_names_in(file)) if snake_case(name) == wanted]
        return found[0] if len({name for name, _ in found}) == 1 else None


def _is_op_library(file: MappedFile) -> bool:
    if "/tensorflow/" in file.path or file.elf is None:
        return False
    return any(name.startswith("libtensorflow_framework") for name in file.elf.needed())


def _names_in(file: MappedFile) -> set[str]:
    try:
        path = Path(file.readable_path)
        if path.stat().st_size > _LARGEST_LIBRARY:
            return set()
        return {match.decode() for match in _OP_NAME.findall(path.read_bytes())}
    except OSError:
        return set()


def _runs_op(frames: Sequence[Frame]) -> bool:
    """The innermost Python frame does nothing but run an op: its wrapper, or what its wrapper calls."""
    inner = frames[1:2] if frames and frames[0].function == "quick_execute" else frames[:1]
    return any(_from_wrapper(frame) is not None for frame in inner)


def _from_locals(frame: Frame) -> str | None:
    if frame.function != "quick_execute" or not frame.locals:
        return None
    name = frame.locals.get("op_name", "").strip("'\"")
    return name if _IDENTIFIER.match(name) and not name.startswith("__") else None


def _from_wrapper(frame: Frame) -> str | None:
    """The op of a generated wrapper (``gen_math_ops.py``), read at the line that runs."""
    if frame.source is None or frame.line is None or not _GENERATED.search(frame.source):
        return None
    try:
        lines = Path(frame.source).read_text(errors="replace").splitlines()
    except OSError:
        return None
    nearby = "\n".join(lines[max(frame.line - 2, 0) : frame.line + _SOURCE_LINES])
    for pattern in (_FAST_PATH, _EXECUTE, _APPLY):
        match = pattern.search(nearby)
        if match is not None:
            return match["op"]
    return None


def snake_case(op: str) -> str:
    """An op's name as TensorFlow's Python wrapper spells it (``GenerateLowerCaseOpName``, python_op_gen.cc)."""
    out: list[str] = []
    for index, letter in enumerate(op):
        if letter == ">":
            out.append("_")
            continue
        follows_lower = index > 0 and op[index - 1].islower()
        before_lower = 0 < index < len(op) - 1 and op[index + 1].islower() and op[index - 1] != ">"
        if letter.isupper() and (follows_lower or before_lower):
            out.append("_")
        out.append(letter.lower())
    return "".join(out)
