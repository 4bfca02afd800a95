"""Custom ops: what a framework asks of them, how much stack their machine code takes, and defects in their sources.

The analysis of the sources finds a ``CodeDefect``; the rules say it in words.
"""

from __future__ import annotations

from typing import Literal

from necropsy.model.base import Address, Confidence, Noun, Severity
from necropsy.model.needs import CpuNeed


class Op(Noun, frozen=True, kw_only=True):
    """A library that was named with ``--op``: what a framework has to fit, and how it was built."""

    path: str
    missing: tuple[str, ...] | None = None
    """Symbols that nothing has: neither what it needs, nor the interpreter, nor a checked distribution. None: not
    looked for."""
    wants_abseil: tuple[str, ...] = ()
    """Releases of Abseil in the names of these symbols (``20230802``)."""
    has_abseil: str | None = None
    """The release of Abseil that the installed TensorFlow brings."""
    wants_strings: Literal["old", "new"] | None = None
    """The C++ string ABI in the names of the missing symbols."""
    has_strings: Literal["old", "new"] | None = None
    """The one that the installed TensorFlow was built with."""
    unsupported: tuple[CpuNeed, ...] | None = None
    """None: not looked at, or it asks the processor itself what it can do."""
    executable_stack: bool = False
    text_relocations: bool = False
    unprotected: tuple[str, ...] = ()
    """Protections of which it shows no sign: ``stack protector``, ``full RELRO``, ``_FORTIFY_SOURCE``."""


class StackFrame(Noun, frozen=True, kw_only=True):
    """A function and the bytes of stack that it takes each time it is called, its return address among them."""

    function: str
    """Demangled; its address in the file where it has no name."""
    bytes: int
    address: Address
    """In the file."""
    is_dynamic: bool = False
    """``bytes`` is a minimum: the function also takes memory whose size is only known at run time."""


class CallCycle(Noun, frozen=True, kw_only=True):
    """Functions that call each other in a circle, or one that calls itself."""

    frames: tuple[StackFrame, ...]
    """In the order of the calls; the last one calls the first."""
    bytes: int
    """What one turn takes of the stack."""
    entry: str
    """The kernel or exported function that leads there."""


class CallPath(Noun, frozen=True, kw_only=True):
    """The deepest path of calls below a function; calls whose target is not in the machine code are not on it."""

    frames: tuple[StackFrame, ...]
    """From the function downwards."""
    bytes: int
    indirect: int = 0
    """How many calls below the function go through a pointer or a table. From 1 on, ``bytes`` is a lower bound."""
    outside: tuple[str, ...] = ()
    """Functions of other libraries that are called below it; their frames are not counted."""
    is_kernel: bool = True
    """Its name is that of an op's kernel: ``Compute``, or ``ComputeAsync``."""
    is_recursive: bool = False
    """A circle of calls lies below it, of which one turn is counted."""


class Binary(Noun, frozen=True, kw_only=True):
    """A built library: what its machine code takes of the stack."""

    path: str
    system: Literal["linux", "win32"] = "linux"
    """What it was built for, by its format."""
    functions: int
    stack: int
    """The size in bytes of the stack that it is held against."""
    frames: tuple[StackFrame, ...] = ()
    """The largest of all its functions, the largest first."""
    cycles: tuple[CallCycle, ...] | None = None
    """None: calls were not followed."""
    paths: tuple[CallPath, ...] | None = None
    """One for each kernel, or where it has none, for each function that can be called from outside."""
    wide: tuple[StackFrame, ...] | None = None
    """Functions below these whose frame takes at least an eighth of the stack."""


UseKind = Literal["recursion-limit", "thread-stack", "py-function", "ctypes", "fork", "tf1-session"]


class SourceUse(Noun, frozen=True, kw_only=True):
    """A place in a Python source where native code can be led to crash."""

    kind: UseKind
    path: str
    line: int
    column: int
    """From 1 on."""
    end_line: int
    text: str
    """The source line, without its indentation."""
    name: str | None = None
    """What is called, or defined: ``lib.make_context``, ``tf.Session``."""
    value: int | None = None
    """The recursion limit, or the size of a stack in bytes."""
    detail: str | None = None
    """What is wrong: ``no restype``, ``not kept alive``, ``calls itself``, ``changes state``, ``after tensorflow``."""
    stack: int | None = None
    """``recursion-limit``: the size of the stack that it is held against, in bytes."""


LAYERS = ("compile_commands.json", "g++'s call graph", "clang-tidy")
"""What adds to the analysis of sources where it exists; a gap with this name says that it was not used."""


class CodePlace(Noun, frozen=True, kw_only=True):
    """A place in a source; lines and columns from 1 on."""

    path: str
    line: int
    column: int
    end_line: int
    text: str
    """The line, without its indentation."""
    role: str
    """What is there: ``function``, ``call``, ``declaration``, ``type``, ``member``, ``access``."""


class CodeFact(Noun, frozen=True, kw_only=True):
    """One step of the proof: a claim, what was seen, and where."""

    claim: str
    seen: str
    where: str | None = None
    """``path:line``"""


class CodeDefect(Noun, frozen=True, kw_only=True):
    """One defect in a C++ source."""

    rule: str
    """Which rule tells it: ``op-recursion``."""
    case: str
    """Which of the rule's cases: each rule file lists its own."""
    place: CodePlace
    """The faulty access, declaration or function."""
    others: tuple[CodePlace, ...] = ()
    function: str | None = None
    """The function that it is in, with its class."""
    kernel: str | None = None
    """The class of the kernel below which it runs."""
    op: str | None = None
    """The registered op of that kernel."""
    names: dict[str, str] = {}
    """What the rule's sentences name: variables, types, members."""
    numbers: dict[str, int] = {}
    """The worst-case numbers: bytes, levels, indices, sizes."""
    facts: tuple[CodeFact, ...] = ()
    severity: Severity = "warning"
    confidence: Confidence = "likely"
    stack: int | None = None
    """The size in bytes of the stack that it is held against, where it is about the stack."""
    is_in_macro: bool = False
    """It lies in a macro's expansion, where nothing may be edited."""
    repair: str | None = None
    """What ``check --fix`` can do about it, as it goes on behind "necropsy check --fix"; None: nothing."""
    source: str | None = None
    """The source that was checked, where the place is in one of its headers."""
