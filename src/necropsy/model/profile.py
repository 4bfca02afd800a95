"""What `necropsy profile` measures of a process: how much of its stacks and of other resources was in use."""

from __future__ import annotations

from typing import Literal

from necropsy.model.base import Noun, Severity
from necropsy.model.concluded import PythonPlace

SetBy = Literal["ulimit -s", "glibc", "threading.stack_size", "OMP_STACKSIZE", "attribute", "pthread_attr_setstack"]
"""Where a thread's stack size comes from. ``glibc``: its default where the limit is unlimited; ``attribute``: the code
that created the thread asked for it; ``pthread_attr_setstack``: it also brought the memory, which has no guard page."""


class StackElsewhere(Noun, frozen=True, kw_only=True):
    """How large a thread's stack is on another system, in bytes."""

    where: str
    bytes: int


class StackFunction(Noun, frozen=True, kw_only=True):
    """What the frames of one function took of a stack: ``times`` frames of ``frame_bytes`` on average."""

    function: str | None = None
    module: str | None = None
    frame_bytes: int
    times: int
    bytes: int
    static_bytes: int | None = None
    """What the function's code says that its frame takes, or the least of it if it takes more as it runs (``alloca``).
    Of the first rows, in files of up to 32 MiB."""
    file: str | None = None
    """Of a function in Python: its source file. ``frame_bytes`` is then what the interpreter takes to run it when C
    code calls it; from CPython 3.11 on, calls from Python take nothing."""
    line: int | None = None
    """The line in ``file`` that ran, of several the one that ran most often."""
    how: Literal["seen", "recovered"] = "recovered"
    """``seen``: its frames were on the stack when the thread was looked at; ``recovered``: from the return addresses
    that its calls have left on the stack."""
    partial: bool = False
    """The chain of calls has gaps: later calls may have overwritten a part of it, or these frames may be of others."""


class StackUse(Noun, frozen=True, kw_only=True):
    """The most of its stack that a thread used: ``size``, ``guard`` and ``peak`` in bytes.

    ``guard`` and what follows it: only of `necropsy profile`.
    """

    tid: int
    name: str | None = None
    """The thread's own name; of `necropsy profile`, ``main`` for the main thread."""
    python_name: str | None = None
    """What Python's ``threading`` calls it, of threads that were seen while they ran."""
    size: int | None = None
    peak: int | None = None
    guard: int | None = None
    peak_at: float | None = None
    """Seconds after the start of the process at which the peak was first seen: up to one interval late."""
    ended: bool | None = None
    """The thread ended before its process did."""
    exact: bool | None = None
    """The peak was read when the thread or the process ended. False: at the last look before, so it is a minimum."""
    inherited: int | None = None
    """Of a forked process: the bytes that its parent had touched, which are not a peak of its own. ``peak`` is None
    where it went no deeper."""
    set_by: SetBy | None = None
    would_not_fit: tuple[StackElsewhere, ...] | None = None
    """The usual stacks of other systems that are smaller than ``peak``, smallest first."""
    functions: tuple[StackFunction, ...] | None = None
    """What filled it, largest first; None where that was not looked for, or not found. Of the few threads of a process
    that came closest to the end of their stacks, and used 64 KiB or more."""


class ResourceUse(Noun, frozen=True, kw_only=True):
    """What a process used at one time: sizes in bytes, and counts. None: not read at that time."""

    at: float
    """Seconds after the start of the process; of peaks, when the most memory was resident."""
    rss: int | None = None
    """Resident memory, the sum of the next three."""
    anonymous: int | None = None
    """Heap, stacks, and other memory that belongs to no file."""
    file: int | None = None
    """Mapped files, programs and libraries among them."""
    shared: int | None = None
    """Shared memory."""
    swap: int | None = None
    address_space: int | None = None
    """All mappings together, as ``RLIMIT_AS`` counts them."""
    data: int | None = None
    """Private writable mappings, as ``RLIMIT_DATA`` counts them."""
    threads: int | None = None
    descriptors: int | None = None
    """Open file descriptors."""
    mappings: int | None = None
    """Mappings of memory, as ``vm.max_map_count`` counts them."""
    group: int | None = None
    """Memory of its control group, file cache included. Of peaks, the kernel's own where it rose during the run."""
    shm: int | None = None
    """What is in ``/dev/shm``, of all processes."""
    gpu: int | None = None
    """Memory that it has on NVIDIA's GPUs, all of them together, as the driver says."""
    minor_faults: int | None = None
    """Page faults since it was started that needed no disk: how often it touched memory for the first time."""
    major_faults: int | None = None
    """Page faults since it was started that had to wait for a disk, as for a program's code or for swapped memory."""
    python_heap: int | None = None
    """What CPython's allocator for small objects holds of the system: objects of up to 512 bytes, and the room for more
    of them. Of CPython 3.8 to 3.11 and 3.13, if its file has the symbols; of some of the looks."""


class TreeUse(Noun, frozen=True, kw_only=True):
    """What the command and its descendants used together at one time, in bytes."""

    at: float
    """Seconds after the start of the command."""
    processes: int
    """How many were alive."""
    rss: int
    """The sum of their resident memory. Pages that several of them share count in each."""
    pss: int | None = None
    """The same with each shared page divided among those that share it; of some of the looks, while there are several
    processes."""


class HeldArray(Noun, frozen=True, kw_only=True):
    """An array or a tensor that a variable of a Python function held, or several alike; never its contents."""

    name: str
    """The variable, or where it was in what the variable held: ``self.batches[3]``, ``cache['train']``."""
    count: int | None = None
    """Of several with the same type and shape in one list, tuple or dict: how many. ``name`` is then that of the list,
    or the part of it that was read (``batches[-128:]``); ``shape`` is that of one, and ``bytes`` of all together."""
    type: str
    """``numpy.ndarray``, ``EagerTensor``, ``torch.Tensor``, or a class that is derived from one."""
    dtype: str | None = None
    shape: tuple[int, ...]
    bytes: int | None = None
    """The number of its elements times the size of one; None where that is not known. A view shares this memory with
    what it is a view of."""

    @property
    def described(self) -> str:
        """``images: float32 [64, 224, 224, 3]``, ``self.batches: 12 x float32 [64, 7]``."""
        several = f"{self.count:,} x " if self.count is not None else ""
        return f"{self.name}: {several}{self.dtype or self.type} [{', '.join(map(str, self.shape))}]"


class ProfileMark(Noun, frozen=True, kw_only=True):
    """Something that happened to a process, for its time line.

    ``child``: it started process ``pid``. ``threads``: it had ``count`` threads, many more or fewer than at the look
    before. ``step``: its resident memory rose by ``bytes``. ``peak``: its resident memory was ``bytes``, the most of
    all looks.
    """

    at: float
    """Seconds after the start of the process at which it was seen."""
    kind: Literal["child", "threads", "step", "peak"]
    pid: int | None = None
    bytes: int | None = None
    count: int | None = None
    python: PythonPlace | None = None
    """Of steps: the line of Python that was running when it was seen, which is up to one interval late. Of the peak:
    that of the step that reached 99 % of it. The line of the program's own code, and not of a package that it called.
    """
    arrays: tuple[HeldArray, ...] = ()
    """What the variables of that function held as the rise was seen, or right after it: the largest six, largest first.
    Whether they took the memory is not known."""


class HeapFrame(Noun, frozen=True, kw_only=True):
    """One level of a call chain: of Python, or of native code where ``line`` is None."""

    function: str
    file: str | None = None
    line: int | None = None


class HeapStack(Noun, frozen=True, kw_only=True):
    """Allocations that were made at the same place: ``count`` of them, with ``bytes`` in all."""

    bytes: int
    count: int | None = None
    """None where only the bytes are known."""
    frames: tuple[HeapFrame, ...]
    """Outermost call first."""


class HeapUse(Noun, frozen=True, kw_only=True):
    """Who allocated the memory of one process; of each tuple the largest, largest first."""

    how: Literal["memray", "sample"]
    """``memray``: every allocation was recorded. ``sample``: only what was running while memory grew, which is less."""
    peak: int | None = None
    """The most bytes that were allocated and not freed at one time. ``sample``: the bytes by which resident memory grew
    above that of the first look."""
    peak_at: float | None = None
    """Seconds after the start of the process."""
    allocated: int | None = None
    """Bytes of all allocations, freed ones included."""
    count: int | None = None
    """How many allocations there were."""
    stacks: tuple[HeapStack, ...] = ()
    """What was allocated at the peak. ``sample``: the lines that were running while memory grew, ``count`` looks at
    each; without frames where none was known."""
    temporaries: tuple[HeapStack, ...] = ()
    """What was freed after at most one other allocation, which is what memray calls temporary."""
    lines: tuple[HeapStack, ...] = ()
    """What single lines allocated during the run, freed memory included; each has one frame, and no ``count`` where
    other lines made more allocations."""
    left_out: int | None = None
    """Bytes of ``peak`` whose call chains are not among ``stacks``, because each was small."""
    complete: bool = True
    """False if the process did not end by itself, so that the last allocations may be missing."""
    recorded: int | None = None
    """Size of the recording in bytes."""


class Regression(Noun, frozen=True, kw_only=True):
    """Something that became worse. Stacks, memory and functions: bytes; else counts."""

    what: Literal["stack", "function", "memory", "address space", "threads", "descriptors", "mappings", "finding"]
    name: str | None = None
    """``stack`` and ``function``: the thread, or the pool of threads whose names differ in a number at the end only.
    ``finding``: the rule."""
    process: str | None = None
    """Of children: the program. All children that run the same program are compared as one."""
    function: str | None = None
    module: str | None = None
    severity: Severity | None = None
    before: int | None = None
    """None: it is new."""
    after: int
    growth: float | None = None
    """How much larger it is, as a share of ``before``: 0.1 for 10 %."""


class Comparison(Noun, frozen=True, kw_only=True):
    """Of `necropsy profile --compare`: this profile and an older one."""

    id: str
    """Of the older document."""
    compared: int
    """How many peaks both profiles have."""
    regressions: tuple[Regression, ...] = ()
    """What became worse: findings first, then stacks and other peaks by their growth; a stack's functions follow it."""


class FailedCheck(Noun, frozen=True, kw_only=True):
    """A condition of `necropsy profile --fail-on` that the run met."""

    condition: str
    """As it was given: the name of a rule, or ``growth=10%``."""
    seen: str
    """What was found, in one line."""


class SmallestLimit(Noun, frozen=True, kw_only=True):
    """The smallest limit with which a command was seen to work, in bytes: of `necropsy profile --limits`."""

    name: Literal["RLIMIT_STACK", "RLIMIT_AS"]
    bytes: int
    spare: int
    """The same with a quarter to spare."""
    fails_at: int | None = None
    """The largest with which it was seen to fail. None: it works with the smallest that was tried."""
    fails: str | None = None
    """What it did then."""
    runs: int
