"""What a process was asked to do when it died: the framework's op, and the call with its arguments."""

from __future__ import annotations

from typing import Literal

from necropsy.model.base import Noun


class NodeLine(Noun, frozen=True, kw_only=True):
    """A line of the program's own Python in the stack that made a node of a graph."""

    function: str | None = None
    source: str | None = None
    line: int | None = None
    code: str | None = None
    """The source line, without its indentation; None where the file has changed since the process started."""


class ForeignCall(Noun, frozen=True, kw_only=True):
    """A call through ctypes in the program's own Python of a function whose argument types are not set there."""

    function: str
    """As the source has it: ``lib.read_frame``."""
    library: str | None = None
    """The file of the library, where the source names it."""
    source: str
    line: int


class Operation(Noun, frozen=True, kw_only=True):
    """The framework operation that ran: ``op`` as registered (``MatMul``), ``kernel`` the C++ class."""

    op: str | None = None
    kernel: str | None = None
    node: str | None = None
    """The node of the graph (``StatefulPartitionedCall/MatMul_1``), where its name is not the op's."""
    python: tuple[NodeLine, ...] | None = None
    """The program's own lines that put the node into its graph, the innermost first."""
    framework: str | None = None
    """``tensorflow``, ``torch``, ..."""
    how: str | None = None
    """What it was read from, for the evidence."""


Unusual = Literal["empty", "negative", "nan", "huge", "null", "not-contiguous"]
"""What of an argument native code often does not expect. ``huge``: a number, or a count of elements, that no signed
32-bit integer holds."""


class Argument(Noun, frozen=True, kw_only=True):
    """One argument of a call into a library, as it stood at the death; what could not be read for certain is None.

    ``value`` only of single numbers, bools, None and a library's own constants (``NHWC``): never text of the user's.
    """

    name: str
    """The parameter's name, or its position (``argument 1``) where only that is known."""
    type: str
    """The type of the Python object: ``numpy.ndarray``, ``EagerTensor``, ``int``; ``Tensor``: one inside a graph."""
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    """The dimensions of an array or tensor; the number of items of a list or tuple."""
    value: str | None = None
    unusual: tuple[Unusual, ...] = ()


class Call(Noun, frozen=True, kw_only=True):
    """The call into a library below which the process died, read from the memory of the Python frames."""

    function: str
    """The operation (``QuantizedMul``) or the function, as the library spells it."""
    library: str | None = None
    """``tensorflow``, ``numpy``, ``ctypes``, ...: the top package of the function."""
    module: str | None = None
    """The module that has it under this name (``numpy.linalg``, ``tensorflow.raw_ops``), where that is known."""
    arguments: tuple[Argument, ...] = ()
    where: str | None = None
    """The frame that it was read from."""
