"""What is a processor's own: its registers and their numbers, how calls use them, and how it enters the kernel.

x86-64 and AArch64 side by side. A reader of another machine's files picks by their ``e_machine``. Sources: the psABIs
(*System V Application Binary Interface, AMD64*, 3.2 and figure 3.36; *DWARF for the Arm 64-bit Architecture*, 4.1;
*Procedure Call Standard for the Arm 64-bit Architecture*, 6), and the kernel's ``struct user_regs_struct``,
``struct user_pt_regs`` and ``struct sigcontext`` of both.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

_WORD = struct.Struct("<Q")
_X86_NUMBERED = tuple(f"r{number}" for number in range(8, 16))
_ARM_NUMBERED = tuple(f"x{number}" for number in range(29))


@dataclass(frozen=True, eq=False)
class Processor:
    """One of them. Names of registers are those that debuggers show; numbers of registers are DWARF's."""

    name: str
    """As ``uname -m`` calls it."""
    machine: int
    """``e_machine`` of its ELF files."""
    status: tuple[str, ...]
    """The registers in NT_PRSTATUS, in order, eight bytes each."""
    shown: tuple[str, ...]
    counter: str
    pointer: str
    """The stack pointer."""
    frame: str
    """The frame pointer, where code keeps one."""
    link: str | None
    """The register in which a call leaves its return address; None: it is pushed on the stack."""
    thread_pointer: str
    numbered: tuple[str, ...]
    """By DWARF number."""
    return_column: int
    """Of the unwind tables: where the return address is said to be."""
    stack_column: int
    frame_column: int
    kept_by_calls: tuple[int, ...]
    """What a function gives back as it found it, the stack pointer aside."""
    control_block: tuple[int, int]
    """From the thread pointer to where glibc's ``struct pthread`` keeps the stack's bounds, at least and at most."""
    starter: tuple[int, int]
    """The same to where it keeps the function that the thread began with (``start_routine``)."""
    call_number: str
    """The register in which the kernel keeps the number of a system call."""
    call_result: str
    clones: frozenset[int]
    """The numbers of clone(2), if it has it, and clone3(2)."""
    system_call: bytes
    returns_from_signal: bytes
    """The code that a signal's handler returns to."""
    to_signal_stack: int
    """Bytes from the stack pointer there to ``uc_stack.ss_sp``, the stack that the handler ran on."""
    to_interrupted: int | None = None
    """Bytes from the stack pointer there to the registers of the interrupted code, as in NT_PRSTATUS; None: the tables
    say it."""
    link_mask: int | None = None
    """What of a saved return address is the address, where processors may sign it; None: all."""
    more: tuple[tuple[int, str], ...] = ()
    """What a thread has beside them: the type of the kernel's note, and a name for its first 8 bytes (or fewer)."""
    call: str = ""
    """Of a stopped thread: the system call that it is in; all ones where it is in none."""
    arguments: tuple[str, ...] = ()
    """The registers of a system call's arguments."""
    to_mask: int = 0
    """In a signal's frame: bytes from the saved stack pointer to the signals that were blocked (``uc_sigmask``)."""
    floating_size: int = 0
    """Bytes of NT_FPREGSET."""
    calls: Mapping[str, int] = field(default_factory=dict)
    """The numbers of the system calls that necropsy asks for, or looks for in a thread."""
    audit: int = 0
    """``AUDIT_ARCH_...``, by which a seccomp filter knows it."""
    size: int = field(init=False)
    """Bytes of the registers in NT_PRSTATUS."""
    live: tuple[str, ...] = field(init=False)
    """What is read of a stopped thread: ``status`` and then ``more``, eight bytes each."""
    live_size: int = field(init=False)

    def __post_init__(self) -> None:
        """Derive the sizes, and ``live``."""
        object.__setattr__(self, "size", 8 * len(self.status))
        object.__setattr__(self, "live", (*self.status, *(name for _, name in self.more)))
        object.__setattr__(self, "live_size", 8 * len(self.live))

    def parse(self, raw: bytes) -> dict[str, int]:
        """The registers of NT_PRSTATUS by name, or those of ``live``. Raises struct.error for too few bytes."""
        names = self.live if len(raw) >= self.live_size else self.status
        return dict(zip(names, struct.unpack_from(f"<{len(names)}Q", raw), strict=True))

    def pack(self, values: Mapping[str, int]) -> bytes:
        """The registers of NT_PRSTATUS as bytes."""
        return struct.pack(f"<{len(self.status)}Q", *(values[name] for name in self.status))

    def word(self, raw: bytes, name: str) -> int:
        """One register of those in ``raw``, as ``live`` has them. Raises struct.error for too few bytes."""
        return int(_WORD.unpack_from(raw, 8 * self.live.index(name))[0])

    def in_call(self, raw: bytes) -> int | None:
        """The number of the system call that a thread with the registers ``raw`` is in; None where it is in none."""
        number = self.word(raw, self.call) & 0xFFFFFFFF
        return None if number >> 31 else number


X86_64 = Processor(
    name="x86_64",
    machine=62,
    status=(
        *("r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx", "rsi", "rdi"),
        *("orig_rax", "rip", "cs", "eflags", "rsp", "ss", "fs_base", "gs_base", "ds", "es", "fs", "gs"),
    ),
    shown=(
        *("rip", "rsp", "rbp", "rax", "rbx", "rcx", "rdx", "rsi", "rdi", *_X86_NUMBERED),
        *("eflags", "fs_base"),
    ),
    counter="rip",
    pointer="rsp",
    frame="rbp",
    link=None,
    thread_pointer="fs_base",
    numbered=("rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", *_X86_NUMBERED, "rip"),
    return_column=16,
    stack_column=7,
    frame_column=6,
    kept_by_calls=(3, 6, 12, 13, 14, 15),
    control_block=(0x200, 0xC00),
    starter=(0x600, 0x700),  # 0x640 in glibc 2.34 to 2.41
    call_number="orig_rax",
    call_result="rax",
    clones=frozenset({56, 435}),
    system_call=bytes.fromhex("0f05"),
    returns_from_signal=bytes.fromhex("48c7c00f0000000f05"),  # mov rax, 15; syscall
    to_signal_stack=16,
    call="orig_rax",
    arguments=("rdi", "rsi", "rdx", "r10", "r8", "r9"),
    to_mask=17 * 8,
    floating_size=512,
    calls={
        "write": 1,
        "writev": 20,
        "exit": 60,
        "kill": 62,
        "ptrace": 101,
        "rt_sigqueueinfo": 129,
        "futex": 202,
        "exit_group": 231,
        "tgkill": 234,
        "perf_event_open": 298,
        "sched_setattr": 314,
        "seccomp": 317,
    },
    audit=0xC000003E,
)
AARCH64 = Processor(
    name="aarch64",
    machine=183,
    status=(*_ARM_NUMBERED, "fp", "lr", "sp", "pc", "pstate"),
    shown=("pc", "sp", "fp", "lr", *_ARM_NUMBERED, "pstate", "tpidr_el0"),
    counter="pc",
    pointer="sp",
    frame="fp",
    link="lr",
    thread_pointer="tpidr_el0",
    numbered=(*_ARM_NUMBERED, "fp", "lr", "sp"),
    return_column=30,
    stack_column=31,
    frame_column=29,
    kept_by_calls=(*range(19, 30),),
    control_block=(-0xC00, -0x40),
    starter=(-0x380, -0x2C0),  # -0x308 in glibc 2.36
    call_number="x8",
    call_result="x0",
    clones=frozenset({220, 435}),
    system_call=bytes.fromhex("010000d4"),
    returns_from_signal=bytes.fromhex("681180d2010000d4"),  # mov x8, #139; svc #0
    to_signal_stack=128 + 16,
    # Behind 128 bytes of siginfo, 176 of ucontext (its signal mask is padded to 1,024 bits), and the fault's address.
    to_interrupted=128 + 176 + 8,
    link_mask=(1 << 48) - 1,
    more=((0x401, "tpidr_el0"), (0x404, "syscallno")),
    call="syscallno",
    arguments=("x0", "x1", "x2", "x3", "x4", "x5"),
    # Behind the flags, the link and the stack of ucontext; the stack pointer is behind 31 registers of mcontext.
    to_mask=40 - (176 + 8 + 31 * 8),
    floating_size=528,
    calls={
        "write": 64,
        "writev": 66,
        "exit": 93,
        "exit_group": 94,
        "futex": 98,
        "ptrace": 117,
        "kill": 129,
        "tgkill": 131,
        "rt_sigqueueinfo": 138,
        "perf_event_open": 241,
        "sched_setattr": 274,
        "seccomp": 277,
    },
    audit=0xC00000B7,
)
BY_MACHINE = {one.machine: one for one in (X86_64, AARCH64)}
"""By ``e_machine``."""
BY_NAME = {one.name: one for one in (X86_64, AARCH64)}
"""As ``uname -m`` calls them."""
