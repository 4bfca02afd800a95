"""What a campaign of ``necropsy fuzz`` made and found."""

from __future__ import annotations

from typing import Any, Literal

from necropsy.model.base import Noun
from necropsy.model.concluded import Diagnosis

FuzzNeed = Literal["guard", "stack-size", "memory-limit", "second-run", "threads", "sanitizer", "graph"]


class FuzzTensor(Noun, frozen=True, kw_only=True):
    """One tensor of a call."""

    dtype: str
    shape: tuple[int, ...]
    values: tuple[Any, ...] | None = None
    """The first 64 elements, in the order of memory; None where they are drawn at random."""


class FuzzCall(Noun, frozen=True, kw_only=True):
    """The call that a finding is about; ``python`` is one expression."""

    target: str
    """The op."""
    inputs: dict[str, FuzzTensor | tuple[FuzzTensor, ...]] = {}
    attributes: dict[str, Any] = {}
    python: str
    repeated: int = 1
    """How often one process makes it to die of it."""
    beside: tuple[str, ...] = ()
    """Other calls that threads make at the same time, each as one expression."""


class FuzzFirst(Noun, frozen=True, kw_only=True):
    """When a finding was first seen."""

    execution: int
    seconds: float


class Reproduced(Noun, frozen=True, kw_only=True):
    """How often the call was made again, each time in a new process, and how often that died."""

    runs: int
    crashed: int


class FuzzPrecondition(Noun, frozen=True, kw_only=True):
    """What separates the calls that die of a finding from those that are accepted, as far as calls were made."""

    condition: str
    """Such as ``max(rows) < dim(params, 0)``; more than one is joined with ``and``."""
    check: str | None = None
    """The lines that enforce it: ``OP_REQUIRES`` of a kernel, ``raise ValueError`` of a Python function."""
    survived: int
    """Accepted calls for which it holds; there is none for which it does not."""
    died: int
    """Deaths for which it does not hold; there is none for which it does."""


class FuzzFinding(Diagnosis, frozen=True, kw_only=True):
    """A death that a call causes, with its diagnosis."""

    signature: str | None = None
    call: FuzzCall
    test: str | None = None
    """The path of the pytest file, relative to the folder in which the campaign was started."""
    first: FuzzFirst
    times: int
    """How often the campaign saw it."""
    reproduced: Reproduced
    needs: tuple[FuzzNeed, ...] = ()
    """What a plain run of the test lacks to die; none of these means that it dies in plain Python."""
    report: str | None = None
    """The id of the document of the run that was diagnosed, which is in ``reports``."""
    elements: int
    """Elements of all inputs of the call."""
    precondition: FuzzPrecondition | None = None


class CallComparison(Noun, frozen=True, kw_only=True):
    """What a call gave when it was made several times: what the rules of ``rules/call`` judge."""

    target: str
    """The op."""
    call: str = ""
    """The call as one expression."""
    runs: int = 0
    """How often it was made, with each byte that new memory was filled with."""
    varies: bool = False
    """Its results differ, though nothing else did."""
    by_fill: bool = False
    """They are the same as long as new memory is filled with the same byte, and others with another byte."""
    modified: tuple[str, ...] = ()
    """Inputs whose elements were others after the call."""
    results: tuple[str, ...] = ()
    """Two that differ, shortened."""
    shapes: tuple[str, ...] = ()
    """The shape of an output as the shape function infers it, and as it is, if they contradict each other."""
    gradient: tuple[str, ...] = ()
    """Where its gradient is wrong: the input, and the derivative in a direction by the gradient and by differences."""
    cured_by_one_thread: bool = False
    """They are the same as long as one thread does the op's work."""
    is_stateful: bool = False
    """The op is registered as one whose results may differ."""
    is_python: bool = False
    """It is a Python function."""


class FuzzTarget(Noun, frozen=True, kw_only=True):
    """What became of the calls of one op."""

    name: str
    executions: int
    accepted: int
    refused: int
    deaths: int
    seconds: float
    slow: int = 0
    """Calls that reached the time limit."""
    hungry: int = 0
    """Calls that reached the limit of memory."""
    misused: int = 0
    """Calls that Python refused before they reached the target; not among the executions."""
    recorded: int = 0
    """Different calls of the command that the campaign began with."""
    sanitized: int = 0
    """Calls of the build with AddressSanitizer, which are among the executions."""


class Fuzzing(Noun, frozen=True, kw_only=True):
    """A campaign. ``seconds`` is its wall time without diagnosis."""

    executions: int
    seconds: float
    seed: int
    findings: tuple[FuzzFinding, ...] = ()
    targets: tuple[FuzzTarget, ...] = ()
