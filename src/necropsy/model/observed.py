"""What was seen of one death."""

from __future__ import annotations

from typing import Literal

from necropsy.model.base import Address, Gap, Noun
from necropsy.model.environment import Environment, Limit
from necropsy.model.stacks import Call, ForeignCall, Frame, Mapping, Operation, Thread

Access = Literal["read", "write", "exec"]
ExitKind = Literal["exited", "signaled", "timeout", "running", "lost", "unknown"]
Misuse = Literal[
    "after-end", "before-start", "freed", "freed-twice", "freed-inside", "overwritten-after", "overwritten-before"
]
"""An access past the end or before the begin, or to a freed block; a second free, or that of an address inside a block;
bytes around a block that were found overwritten when it was freed."""


class FastFail(Noun, frozen=True, kw_only=True):
    """The subcode of ``__fastfail`` (Windows, only in the exception record, never in the exit status)."""

    code: int
    name: str | None = None


class NtStatus(Noun, frozen=True, kw_only=True):
    """A 32-bit Windows status: ``value`` as hex string ``0xC0000409``, ``signed`` as Python and PyCharm print it."""

    value: str
    signed: int
    name: str | None = None
    fast_fail: FastFail | None = None


class Exit(Noun, frozen=True, kw_only=True):
    """How a process ended. ``code`` for exited, ``signal`` (``SIGSEGV``) for signaled."""

    kind: ExitKind
    """``timeout``: stopped at the time limit; ``running``: read while it lived; ``lost``: gone, nobody says how."""
    code: int | None = None
    signal: str | None = None
    ntstatus: NtStatus | None = None
    text: str | None = None
    """The words that said so, where a text did."""


class Former(Noun, frozen=True, kw_only=True):
    """What an unmapped address belonged to before it was unmapped, as far as the process's memory still shows it."""

    kind: Literal["library", "mmap", "heap-block"]
    """``mmap``: a mapping of Python's (a file, shared memory); ``heap-block``: a large block of malloc's."""
    name: str | None = None
    """The library, as it was loaded."""
    low: Address | None = None
    high: Address | None = None
    holder: str | None = None
    """Where its address still is: a register or a variable."""
    seen: str
    where: str


class Fault(Noun, frozen=True, kw_only=True):
    """What the kernel said of the fatal signal.

    ``code`` is the name of ``si_code`` (``SEGV_MAPERR``); ``address`` is ``si_addr`` and ``None`` where the kernel does
    not know it (``SI_KERNEL``) or where the signal was sent by a process. An address of 0 is an address.
    """

    signal: str
    code: str | None = None
    address: Address | None = None
    access: Access | None = None
    mapping: Mapping | None = None
    """The mapping that holds ``address``; ``None`` when it lies in none (then ``code`` is ``SEGV_MAPERR``)."""
    mapping_below: Mapping | None = None
    """The nearest mapping that ends at or below ``address``, where ``address`` may not be used at all."""
    former: Former | None = None
    """What ``address`` belonged to before it was unmapped; None where nothing in memory says so."""
    truncated_from: Mapping | None = None
    """A mapping that holds an address with the lower 32 bits of ``address``, where ``address`` has no others: then a
    pointer went through a 32-bit integer."""
    beyond_file: bool | None = None
    """SIGBUS: ``address`` lies behind the end of the file that is mapped there."""
    space_left: int | None = None
    """SIGBUS: bytes left on the file system of the file that is mapped there."""
    sender: int | None = None
    """PID of the process that sent the signal (``SI_USER``, ``SI_TKILL``, ``SI_QUEUE``), as it is where necropsy runs;
    0 where it cannot be seen from there."""
    sender_command: tuple[str, ...] | None = None
    """The arguments of another process that sent it, where they could be read."""
    sent_by_itself: bool | None = None
    handled_first: bool = False
    """A handler (faulthandler, absl, ...) had caught it before; the fault is then that of the first chance."""


class StopRequest(Noun, frozen=True, kw_only=True):
    """A signal that asked the process to end (SIGTERM, SIGINT, SIGQUIT, SIGXCPU), and at which its threads were read.

    ``threads`` then say where each stood at that signal, and not when the process ended.
    """

    signal: str
    sender: int | None = None
    """PID of the process that sent it; 0 where that cannot be seen, None where the kernel did."""
    sender_command: tuple[str, ...] | None = None
    handled: bool | None = None
    """The process had a handler for it."""
    at: str | None = None
    """When it came; ISO 8601 in UTC."""
    seconds: float | None = None
    """From then to the end of the process."""


class MemoryOperand(Noun, frozen=True, kw_only=True):
    """One memory operand of the faulting instruction: ``text`` as disassembled, ``address`` as computed from registers.

    ``registers`` holds the values that the address was computed from.
    """

    text: str
    access: Access | None = None
    address: Address | None = None
    size: int | None = None
    registers: dict[str, Address] = {}


class Instruction(Noun, frozen=True, kw_only=True):
    """The instruction at the program counter of the crashed thread."""

    address: Address
    text: str | None = None
    """``None`` where the bytes could not be read: the program counter itself points to no memory."""
    mnemonic: str | None = None
    operands: tuple[MemoryOperand, ...] = ()
    registers: dict[str, Address] = {}
    """Values of every register that the instruction names."""
    literals: tuple[str, ...] = ()
    """Those registers whose value is in the code just before: the program's author wrote it there."""
    cpu_feature: str | None = None
    """The CPU feature that it needs, where it is not part of the x86-64 baseline."""
    cpu_has_feature: bool | None = None


class Module(Noun, frozen=True, kw_only=True):
    """A mapped ELF (or PE) file. ``build_id`` in hex. ``version`` where its package or name tells it."""

    path: str
    low: Address
    high: Address
    build_id: str | None = None
    version: str | None = None
    package: str | None = None
    """The distribution package that it was installed with."""


class Message(Noun, frozen=True, kw_only=True):
    """A known phrase that the process left: ``kind`` is the phrase's id in ``data/phrases.toml``.

    ``where`` says where it was read: ``log line 12``, ``__abort_msg``, ``memory of thread 4711``.
    """

    kind: str
    text: str
    """The line that holds it."""
    where: str
    line: int | None = None
    fields: dict[str, str] = {}
    """What was taken from it, by name: ``file``, ``line``, ``version``."""


class LastWords(Noun, frozen=True, kw_only=True):
    """What a program wrote last, in its own words: a line or a short paragraph.

    ``where``: ``the end of stderr`` or ``the end of the text``; for words that were found elsewhere, the place, and
    that they were not read from stderr.
    """

    text: str
    where: str


class CppException(Noun, frozen=True, kw_only=True):
    """The C++ exception that nobody caught: ``type`` demangled, ``what`` as ``what()`` would return it."""

    type: str | None = None
    what: str | None = None
    where: str = "memory"
    """Where it was read."""


class GuardedBlock(Noun, frozen=True, kw_only=True):
    """The block that a program misused, by the record that the guard allocator kept of it.

    ``distance``: bytes between the block and the nearest byte that was accessed or overwritten: 0 is the byte next to
    it. None of an access or a free of the block itself; ``offset`` is then where in it that was.
    """

    misuse: Misuse
    address: Address
    size: int
    alignment: int
    distance: int | None = None
    offset: int | None = None
    """Of the access from the block's first byte; None of a second free."""
    overwritten: int | None = None
    """How many bytes were found overwritten, from the first to the last one."""
    pointer: str | None = None
    """The register that holds an address inside the block; None where the block is only the nearest one."""
    allocated: tuple[Frame, ...] | None = None
    """The functions that asked for it, innermost first; those that the kept piece of the stack leads to."""
    allocated_by: int | None = None
    """The thread."""
    freed: tuple[Frame, ...] | None = None
    """The functions that freed it (first), innermost first; None of a block that was in use."""
    freed_by: int | None = None


class Crash(Noun, frozen=True, kw_only=True):
    """What was observed of one death, be it a process, a log, a core or a dump. Every part may be missing."""

    pid: int | None = None
    at: str | None = None
    """When the fatal signal was seen; ISO 8601 in UTC, to the microsecond."""
    exit: Exit | None = None
    fault: Fault | None = None
    """None where no signal was seen, as after a plain exit."""
    stop_request: StopRequest | None = None
    """The signal from outside at which its threads were read, and which it ended after."""
    threads: tuple[Thread, ...] | None = None
    """None where none could be read."""
    registers: dict[str, Address] | None = None
    """Of the crashed thread, at the fault."""
    instruction: Instruction | None = None
    guarded_block: GuardedBlock | None = None
    """The block that was misused, where the program ran under the guard allocator (`run --guard`)."""
    modules: tuple[Module, ...] | None = None
    """Files that were mapped: the program and its libraries."""
    heaps: tuple[Mapping, ...] | None = None
    """The mappings that the C library's malloc takes its small blocks from."""
    libraries: dict[str, str] | None = None
    """Library or package name to version: the ones that tell something (tensorflow, numpy, libc)."""
    log_tail: str | None = None
    """The end of what was written to stderr, or of the text that was given."""
    messages: tuple[Message, ...] | None = None
    """Known phrases, in the order in which they were written."""
    abort_message: str | None = None
    """glibc's own last words (``__abort_msg``)."""
    last_words: LastWords | None = None
    """What the program wrote last, as found in its memory where stderr could not be read."""
    cpp_exception: CppException | None = None
    operation: Operation | None = None
    call: Call | None = None
    """The call into a library that it died in, with its arguments."""
    foreign_calls: tuple[ForeignCall, ...] | None = None
    """Calls through ctypes without declared types, in the user's files on a Python stack; None: not read."""
    environment: Environment | None = None
    memory_events: dict[str, int] | None = None
    """By how much the memory counters of its control group rose during the run: ``oom_kill``, ``max``, ``failcnt``."""
    memory_cgroup: str | None = None
    """The folder of that control group."""
    memory_limit: int | None = None
    """The limit of that control group in bytes."""
    limits: tuple[Limit, ...] | None = None
    """The limits that were set, and what was in use of each. None where they were not read."""
    forked_from_threads: int | None = None
    """How many threads its parent had when it was forked, where it has not executed another program since."""
    gaps: tuple[Gap, ...] = ()
    """What was not observed, and why."""
    stack_reserve: int | None = None
    """Windows: bytes of stack that the executable's header asks for (SizeOfStackReserve), for its first thread and for
    every thread that names no size."""

    @property
    def crashed_thread(self) -> Thread | None:
        """The thread that took the fatal signal."""
        return next((thread for thread in self.threads or () if thread.crashed), None)

    @property
    def in_handler(self) -> Exit | None:
        """The end of a process that no signal ended: the handler of its fault was still running when it came."""
        caught = self.fault is not None and self.fault.handled_first and self.registers is not None
        if not caught or self.exit is None or self.exit.ntstatus is not None or self.exit.text is not None:
            return None
        return self.exit if self.exit.kind in {"timeout", "running"} or self.exit.code else None

    def gap(self, part: str) -> Gap | None:
        """Why ``part`` was not observed, if it is known to be missing."""
        return next((gap for gap in self.gaps if gap.part == part), None)
