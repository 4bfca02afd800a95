"""The stacks of a process: threads, their frames, the mappings that they lie in, and the calls that were being made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from necropsy.model.base import Address, Noun

_STRING = "<string>"
_TYPED = (_STRING, "<stdin>", "<console>", "<ipython-input")
"""What the file names of such code begin with."""

FoundBy = Literal["registers", "cfi", "frame-pointer", "scan", "text"]
Owner = Literal["script", "native-code", "package", "framework", "interpreter", "system"]
"""Whose code it is: ``script`` and ``native-code`` are the user's own, a ``package`` is third-party code."""


class Wait(Noun, frozen=True, kw_only=True):
    """What a thread waits for in the kernel: ``call`` is the system call (``futex``), ``on`` what it was given.

    ``on`` in words: ``the lock at 0x7f..``, ``pipe:[4711]``. ``owner`` is the id of the thread that holds the lock,
    where the lock itself says so (a mutex of glibc's does).
    """

    call: str
    on: str | None = None
    address: Address | None = None
    owner: int | None = None
    lock: str | None = None
    """Which lock of Python it is: ``threading.RLock``, ``threading.Lock``, ``multiprocessing.Lock``. ``Thread.join``
    where the thread waits for the end of another one, ``owner``."""
    lock_object: Address | None = None
    """Address of that Python object; ``address`` is that of its semaphore."""
    count: int | None = None
    """How often its owner has taken it; 0 where no thread of this process has."""
    owner_by: Literal["lock", "with", "join"] | None = None
    """How the owner is known: the lock keeps it; that thread runs the body of a ``with`` statement on the lock; or it
    is the thread whose end is waited for."""
    limited: bool | None = None
    """It waits no longer than a limit of time."""
    ended: bool = False
    """The call had ended when the thread was stopped: it was in it, and may have waited or not."""


class Coroutine(Noun, frozen=True, kw_only=True):
    """A coroutine that a task of asyncio runs, and the line on which it stands."""

    function: str | None = None
    source: str | None = None
    line: int | None = None


class Task(Noun, frozen=True, kw_only=True):
    """A task of asyncio. ``awaits``: its coroutines, the innermost first; each is awaited by the next one."""

    name: str | None = None
    awaits: tuple[Coroutine, ...] = ()


class Mapping(Noun, frozen=True, kw_only=True):
    """One line of ``/proc/PID/maps``: ``[low, high)`` in bytes, ``permissions`` as ``rw-p``."""

    low: Address
    high: Address
    permissions: str
    path: str | None = None


class Frame(Noun, frozen=True, kw_only=True):
    """One call frame, native or Python; ``stack_bytes`` is the distance to the caller's frame in bytes."""

    index: int
    kind: Literal["native", "python"]
    function: str | None = None
    """Demangled; None where the library has no symbol for it."""
    module: str | None = None
    """File name of the ELF file or, for Python frames, ``None``."""
    module_offset: Address | None = None
    address: Address | None = None
    source: str | None = None
    """Source file; of native frames only with debug information."""
    line: int | None = None
    code: str | None = None
    """Python frames: the source line as it was when the process was read, without its indentation; None where the file
    has changed since the process started."""
    excerpt: tuple[str, ...] = ()
    """Python frames: the source lines ``line`` - 1, ``line`` and ``line`` + 1, without their common indentation. A line
    that the file does not have is empty. Read as ``code``, and only where that is known."""
    columns: tuple[int, int] | None = None
    """Which part of ``code`` ran: its first character, counted from 0, and the one after its last. None where it is the
    whole line, or where the compiler's positions are not known (before CPython 3.11)."""
    stack_bytes: int | None = None
    found_by: FoundBy | None = None
    """How it was found: ``cfi`` by unwind tables; ``frame-pointer`` and ``scan`` are guesses."""
    mapping: Mapping | None = None
    """The executable mapping that holds ``address``, where no ELF file is mapped there: code made at run time."""
    evaluated_by: int | None = None
    """Python frames: ``index`` of the native frame (``_PyEval_EvalFrameDefault``) that runs it."""
    locals: dict[str, str] | None = None
    """Python frames: only with ``--python-locals``. Native frames: arguments that a debugger printed as addresses."""
    values: tuple[Argument, ...] | None = None
    """The innermost Python frame of the user's own code: its local variables that are numbers or None, and dtype and
    shape of those that are arrays or tensors, at most 12; those that the source line names come first. Never contents
    or text; variables whose names look like secrets are left out. None where they were not read."""
    owner: Owner | None = None
    """Whose code it is; None where its file is not known, as for code made at run time."""


def is_typed(source: str | None) -> bool:
    """Whether this is the file name of Python code that was typed in at a prompt, or passed with ``python -c``."""
    return (source or "").startswith(_TYPED)


def typed_frames(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """The frames of a Python stack whose code was typed in.

    TensorFlow compiles the Python functions of a loaded op library as ``<string>``, the name that ``python -c`` uses
    too. The program's own functions are defined above the line that a module of this name has reached; all others are
    left out. At a prompt (``<stdin>``), line numbers begin anew with each input and say nothing.
    """
    typed = [frame for frame in frames if is_typed(frame.source)]
    modules = [one for one in typed if one.function == "<module>"]
    if not modules:
        return tuple(typed)  # a thread: nothing tells whose they are
    reached = max((one.line or 0 for one in modules if one.source == _STRING), default=0)
    return tuple(one for one in typed if one.source != _STRING or (one.line or 0) <= reached)


class Fold(Noun, frozen=True, kw_only=True):
    """A run of frames that repeats with a period: A-B-A-B is one recursion of period 2.

    ``start`` is the index of its first frame (0 is the innermost), ``times`` the number of periods,
    ``bytes_per_period`` the stack that one period takes.
    """

    period: int
    times: int
    functions: tuple[str, ...]
    bytes_per_period: float | None = None
    start: int | None = None
    modules: tuple[str | None, ...] = ()
    python: tuple[Frame, ...] = ()
    """The Python frames that repeat with it, where the recursion passes through Python code."""


class Stack(Noun, frozen=True, kw_only=True):
    """A thread's stack: ``[low, high)``; ``size`` is what it may grow to, ``used`` what lay below ``high`` at the end.

    ``size``, ``used`` and ``guard`` are in bytes. For the main thread ``size`` is the soft RLIMIT_STACK, for others the
    mapping. ``guard_hit``: the fault address is below ``low`` and within reach of this stack, so it was exhausted.
    """

    low: Address | None = None
    high: Address | None = None
    size: int | None = None
    used: int | None = None
    guard: int | None = None
    guard_hit: bool | None = None
    pointer: Address | None = None
    """The stack pointer; with ``guard_hit`` it may lie below ``low``."""
    is_main: bool = False
    is_alternate: bool = False
    """The thread had been moved to it: a signal's stack (``sigaltstack``) or a coroutine's, not the thread's own.
    ``is_main`` then says whose thread it was."""


class Thread(Noun, frozen=True, kw_only=True):
    """One thread. ``frames`` holds the first and last 256 of ``frames_total``; index 0 is the innermost.

    ``tid`` is None where a text does not say which thread it speaks of.
    """

    tid: int | None = None
    name: str | None = None
    """As the kernel has it; at most 15 characters."""
    python_name: str | None = None
    """The name of its ``threading.Thread``; None of the main thread, and of threads that Python did not start."""
    tasks: tuple[Task, ...] = ()
    """Of a thread whose asyncio loop runs a task: that task, then the one that waits for it, and so on."""
    crashed: bool = False
    python: tuple[Frame, ...] | None = None
    """Its Python frames, innermost first; None where it ran no Python, or that was not read."""
    frames: tuple[Frame, ...] | None = None
    frames_total: int | None = None
    """How many were read."""
    frames_estimate: int | None = None
    """About how many there are, where not all could be read: those read are its two ends."""
    complete: bool | None = None
    """The unwinder reached the thread's first frame."""
    folds: tuple[Fold, ...] = ()
    """Recursions in it, each told once."""
    largest: tuple[Frame, ...] = ()
    """The frames with the most stack bytes, largest first (at most 5)."""
    stack: Stack | None = None
    waits: Wait | None = None
    """What it waited for when it was stopped; None where it was running, or where that was not looked at."""
    holds_gil: bool | None = None

    @property
    def known_as(self) -> str | None:
        """Its name in Python where it has one, else the kernel's."""
        return self.python_name or self.name


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
