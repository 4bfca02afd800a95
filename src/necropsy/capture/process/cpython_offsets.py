"""Field offsets of CPython's objects: for 3.8 to 3.12 by the headers, for 3.13 from the process itself.

The headers are ``internal/pycore_runtime.h``, ``internal/pycore_interp.h``, ``cpython/pystate.h``, ``frameobject.h``
(to 3.10), ``internal/pycore_frame.h``, ``cpython/code.h`` and ``cpython/unicodeobject.h``, as compiled for x86-64.
Since 3.13 the runtime begins with a table of them, ``_Py_DebugOffsets``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

from necropsy.capture.process.memory import Memory

CSTACK = 3
"""``FRAME_OWNED_BY_CSTACK``: where the evaluator was entered (3.12 and 3.13), it runs no code of its own."""
_COOKIE = b"xdebugpy"
_NEWEST = 0x030D
_HIGHEST_OFFSET = 1 << 16
_EXC_INFO_OF_3_13 = 120
"""Not in its table."""
_DEBUG_OFFSETS = struct.Struct("<8sQQ3Q13Q9Q6Q10Q")
"""Of ``_Py_DebugOffsets``: cookie, version, free_threaded; runtime, interpreter, thread, frame and code object."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Offsets in bytes. Of a thread: ``frame`` leads to its innermost frame, over ``frame_via`` where that is not None.

    ``native_id`` is None where the thread knows only its thread pointer. Of a frame: ``owner`` and ``is_entry`` are one
    byte each; ``instruction`` is a pointer, or (``counts``, 3.10) the number of an instruction, with the line behind it
    where the frame is traced. The letters of a ``str`` begin ``ascii`` or ``wide`` bytes behind its head.
    """

    interpreters: int
    interpreter_next: int = 0
    threads: int
    thread_next: int = 8
    thread_interpreter: int = 16
    thread_pointer: int
    native_id: int | None
    frame: int
    frame_via: int | None = None
    code: int
    previous: int
    instruction: int
    counts: bool = False
    in_bytes: bool = False
    """The number counts bytes, and the table of lines is that of 3.9 and before."""
    owner: int | None = None
    is_entry: int | None = None
    first_line: int
    file_name: int
    name: int
    lines: int
    local_names: int
    """Of the code object: the names of its local variables, the parameters first."""
    parameters: int
    """Of the code object: how many of them are positional; two numbers on, how many are keyword-only."""
    variables: int
    """Of the frame: where the values of its local variables begin."""
    instructions: int = 0
    ascii: int = 48
    wide: int = 72
    sys_dict: int | None = None
    """Of the interpreter: the names of the module ``sys``."""
    exc_info: int = 144
    """Of a thread: the stack of the exceptions that are being handled."""
    null_after_callable: bool = False
    """On the evaluation stack, where a function is called that is no method: the empty slot comes after it (3.13)."""

    @property
    def namespace(self) -> int:
        """Of the frame: the dict of its variables, where its code has no fast ones (a module, the body of a class)."""
        return 56 if self.counts else 40 if self.tagged else 24

    @property
    def names(self) -> int:
        """Of the code object: the names that it uses, other than those of its local variables."""
        return 64 if self.counts else 32

    @property
    def flags(self) -> int:
        """Of the code object: ``co_flags``, 4 bytes."""
        return 36 if self.counts else 48

    @property
    def tagged(self) -> bool:
        """CPython 3.12 and later: integers keep their sign in a tag, and frames begin with their code."""
        return self.code == 0

    @property
    def frame_size(self) -> int:
        """Bytes of a frame that hold all these."""
        return max(self.code, self.previous, self.instruction, self.owner or 0, self.is_entry or 0) + 8


_OF_3_8 = Layout(
    interpreters=32,
    threads=8,
    thread_pointer=176,
    native_id=None,
    frame=24,
    code=32,
    previous=24,
    instruction=104,
    counts=True,
    in_bytes=True,
    first_line=40,
    file_name=104,
    name=112,
    lines=120,
    local_names=72,
    parameters=16,
    variables=360,
    sys_dict=72,
)
_KNOWN = {
    "3.8": _OF_3_8,
    "3.9": replace(_OF_3_8, sys_dict=872),
    "3.10": replace(_OF_3_8, in_bytes=False, instruction=96, variables=352, sys_dict=872),
    "3.11": Layout(
        interpreters=40,
        threads=16,
        thread_pointer=152,
        native_id=160,
        frame=8,
        frame_via=56,
        code=32,
        previous=48,
        instruction=56,
        is_entry=68,
        first_line=72,
        file_name=112,
        name=128,
        lines=136,
        local_names=96,
        parameters=56,
        variables=72,
        sys_dict=904,
        exc_info=120,
        instructions=184,
    ),
    "3.12": Layout(
        interpreters=40,
        threads=72,
        thread_pointer=136,
        native_id=144,
        frame=0,
        frame_via=56,
        code=0,
        previous=8,
        instruction=56,
        owner=70,
        first_line=68,
        file_name=112,
        name=128,
        lines=136,
        local_names=96,
        parameters=52,
        variables=72,
        sys_dict=352,
        exc_info=104,
        instructions=192,
        ascii=40,
        wide=56,
    ),
}
READABLE = "3.8 to 3.13"


def layout_of(version: str, memory: Memory, runtime: int) -> Layout | None:
    """The layout of an interpreter of this version whose ``_PyRuntime`` lies at ``runtime``; None for any other."""
    minor = ".".join(version.split(".")[:2])
    return _by_its_own_table(memory, runtime) if minor == "3.13" else _KNOWN.get(minor)


def _by_its_own_table(memory: Memory, runtime: int) -> Layout | None:
    data = memory.exactly(runtime, _DEBUG_OFFSETS.size)
    if data is None:
        return None
    cookie, version, free_threaded, *offsets = _DEBUG_OFFSETS.unpack(data)
    # Without the GIL objects have another head, which the table does not tell.
    if cookie != _COOKIE or version >> 16 != _NEWEST or free_threaded or max(offsets) >= _HIGHEST_OFFSET * 16:
        return None
    _, _, interpreters = offsets[:3]
    _, _, interpreter_next, threads = offsets[3:7]
    _, _, thread_next, thread_interpreter, frame, thread_pointer, native_id = offsets[16:23]
    _, previous, code, instruction, variables, owner = offsets[25:31]
    _, file_name, _, name, lines, first_line, parameters, local_names, _, instructions = offsets[31:41]
    return Layout(
        interpreters=interpreters,
        interpreter_next=interpreter_next,
        threads=threads,
        thread_next=thread_next,
        thread_interpreter=thread_interpreter,
        thread_pointer=thread_pointer,
        native_id=native_id,
        frame=frame,
        code=code,
        previous=previous,
        instruction=instruction,
        owner=owner,
        first_line=first_line,
        file_name=file_name,
        name=name,
        lines=lines,
        local_names=local_names,
        parameters=parameters,
        variables=variables,
        instructions=instructions,
        sys_dict=offsets[9],
        exc_info=_EXC_INFO_OF_3_13,
        ascii=40,
        wide=56,
        null_after_callable=True,
    )
