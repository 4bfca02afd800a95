"""Stacks of x86 and ARM64, and of dumps of Linux, by frame pointers: from dumps written for it byte by byte."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from necropsy.capture import open_minidump
from necropsy.capture.windows import epilogue
from necropsy.diagnose import diagnose
from necropsy.formats.minidump import parse
from necropsy.model import Crash, Frame
from necropsy.rules import crash_rules
from writers import minidump as w
from writers import pe

EXE, K32, NT = 0x400000, 0x75000000, 0x77000000
FAR = 0x7FF6_0000_0000
LOW, HIGH = 0x100000, 0x200000
TEB = 0x7FFDE000


@dataclass
class Case:
    """A process with one thread; ``words`` lie on its stack from ``pointer`` on."""

    architecture: int = w.X86
    regs: dict[str, int] = field(default_factory=dict)
    words: Sequence[int] = ()
    pointer: int = 0x1FF000
    code: int = 0xC0000005
    parameters: Sequence[int] = (0, 0)
    memory: dict[int, bytes] = field(default_factory=dict)
    teb: int = 0
    modules: Sequence[w.Module] = (
        w.Module("C:\\a\\app.exe", EXE, 0x9000),
        w.Module("C:\\w\\kernel32.dll", K32, 0x9000),
        w.Module("C:\\w\\ntdll.dll", NT, 0x9000),
    )
    platform: int = 2
    more: Sequence[tuple[int, w.Blob]] = ()
    context: bytes = b""
    images: Path | None = None

    @property
    def _context(self) -> bytes:
        if self.context:
            return self.context
        if self.architecture == w.X86:
            return w.context_x86(esp=self.pointer, **self.regs)
        if self.architecture == w.AMD64:
            return w.context(rsp=self.pointer, **self.regs)
        return w.context_arm64(old=False, sp=self.pointer, **self.regs)

    def crash(self) -> Crash:
        layout = "<I" if self.architecture == w.X86 else "<Q"
        stack = b"".join(struct.pack(layout, one) for one in self.words)
        streams = [
            (w.SYSTEM, w.system(architecture=self.architecture, platform=self.platform)),
            (w.THREADS, w.threads([w.Thread(10, self._context, self.teb, self.pointer, stack)])),
            (w.MODULES, w.modules(self.modules)),
            (w.MEMORY, w.memory(list(self.memory.items()))),
            (w.EXCEPTION, w.exception(10, self.code, self.regs.get("eip", 0), self.parameters, self._context)),
            *self.more,
        ]
        crash = open_minidump.crash_of(parse(w.minidump(streams)), images=[self.images] if self.images else ())
        failed = [gap for gap in crash.gaps if "Error: " in gap.why]
        assert not failed, failed
        return crash


def frames(crash: Crash) -> tuple[Frame, ...]:
    thread = crash.crashed_thread
    assert thread is not None
    return thread.frames or ()


def found(crash: Crash) -> list[tuple[int | None, str | None]]:
    return [(one.address, one.found_by) for one in frames(crash)]


def complete(crash: Crash) -> bool | None:
    thread = crash.crashed_thread
    return None if thread is None else thread.complete


# ---------------------------------------------------------------- x86, no image at hand

AT = 0x1FF000


def test_frame_pointers_lead_to_the_first_frame() -> None:
    words = [0, 0, AT + 24, EXE + 0x1100, 0, 0, AT + 40, K32 + 0x1200, 0, 0, 0, 0]
    crash = Case(regs={"eip": EXE + 0x1000, "ebp": AT + 8}, words=words).crash()
    assert found(crash)[:3] == [
        (EXE + 0x1000, "registers"),
        (EXE + 0x1100, "frame-pointer"),
        (K32 + 0x1200, "frame-pointer"),
    ]
    # The last frame pointer leads to zeros: but a thread begins in ntdll.dll, and this is kernel32.dll.
    words[10:] = [0, 0]
    ended = Case(regs={"eip": EXE + 0x1000, "ebp": AT + 8}, words=[*words[:7], NT + 0x1200, 0, 0, 0, 0]).crash()
    assert complete(ended)
    assert [one.module for one in frames(ended)] == ["app.exe", "app.exe", "ntdll.dll"]
    assert ended.gap("frames") is None
    assert frames(ended)[1].stack_bytes == 16


def test_a_frame_pointer_that_leads_down_is_not_followed() -> None:
    words = [0, 0, AT, EXE + 0x1100, 0, NT + 0x1300, 0, 0]
    crash = Case(regs={"eip": EXE + 0x1000, "ebp": AT + 8}, words=words).crash()
    assert [how for _, how in found(crash)[1:]] == ["scan", "scan"]


def test_a_frame_pointer_outside_of_the_stack_is_not_followed() -> None:
    there = {0x300000: struct.pack("<II", 0, EXE + 0x1800)}
    crash = Case(regs={"eip": EXE + 0x1000, "ebp": 0x300000}, words=[0, EXE + 0x1100, 0], memory=there).crash()
    assert found(crash)[1:] == [(EXE + 0x1100, "scan")]


def test_what_lies_in_no_module_is_no_caller() -> None:
    words = [0x12345678, AT + 16, 0x12345678, 0, 0, 0x12345678]
    crash = Case(regs={"eip": EXE + 0x1000, "ebp": AT + 4}, words=words).crash()
    assert len(frames(crash)) == 1 and complete(crash) is False
    gap = crash.gap("frames")
    assert gap is not None and "no caller was found" in gap.why


def test_who_called_into_nothing_is_at_the_stack_pointer() -> None:
    words = [EXE + 0x1100, AT + 16, EXE + 0x1200, 0, 0, NT + 0x1300]
    crash = Case(regs={"eip": 0x10, "ebp": AT + 4}, words=words, parameters=(8, 0x10)).crash()
    assert found(crash)[1:3] == [(EXE + 0x1100, "scan"), (EXE + 0x1200, "frame-pointer")]
    verdict = diagnose(crash, crash_rules()).verdict
    assert verdict is not None and verdict.rule == "bad-jump"


# ---------------------------------------------------------------- x86, with the image

PROLOGUE = bytes.fromhex("55 89e5 83ec10 8b01 c9 c3")
"""push ebp; mov ebp, esp; sub esp, 16; mov eax, [ecx]; leave; ret"""
FRAMELESS = bytes.fromhex("53 83ec08 8b01 83c408 5b c20800")
"""push ebx; sub esp, 8; mov eax, [ecx]; add esp, 8; pop ebx; ret 8"""
AT_CALLEE, AT_FRAMELESS, AT_CALLER = 0x1000, 0x1020, 0x1040


def image(folder: Path) -> w.Module:
    """``app.exe`` with both functions, and a caller whose call returns to ``RETURNS``."""
    code = bytearray(0x100)
    code[0 : len(PROLOGUE)] = PROLOGUE
    code[0x20 : 0x20 + len(FRAMELESS)] = FRAMELESS
    for place, target in ((0x40, 0), (0x48, 0x20)):
        code[place : place + 5] = b"\xe8" + struct.pack("<i", target - place - 5)
    made = pe.Writer(machine=0x14C, base=EXE)
    assert made.section(".text", bytes(code), pe.CODE) == AT_CALLEE
    (folder / "app.exe").write_bytes(made.written(wide=False))
    return w.Module("C:\\a\\app.exe", EXE, made.size_of_image, made.timestamp)


RETURNS, RETURNS_OTHER = EXE + 0x1045, EXE + 0x104D
STALE = EXE + 0x1050
"""In the code, and behind no call."""


@pytest.mark.parametrize(
    ("eip", "words", "frame"),
    [
        (AT_CALLEE, [RETURNS, 0], AT + 8),
        (AT_CALLEE + 1, [AT + 12, RETURNS, 0], AT + 8),
        (AT_CALLEE + 6, [STALE, STALE, STALE, STALE, AT + 28, RETURNS, 0], AT + 16),
        (AT_CALLEE + 9, [RETURNS, 0], AT + 8),
    ],
)
def test_a_function_with_a_frame_at_each_of_its_places(tmp_path: Path, eip: int, words: list[int], frame: int) -> None:
    case = Case(regs={"eip": EXE + eip, "ebp": frame}, words=words, images=tmp_path)
    case.modules = (image(tmp_path),)
    assert frames(case.crash())[1].address == RETURNS


@pytest.mark.parametrize(
    ("at", "words"),
    [
        (0, [RETURNS_OTHER]),
        (1, [STALE, RETURNS_OTHER]),
        (4, [RETURNS, STALE, STALE, RETURNS_OTHER]),
        (6, [RETURNS, STALE, STALE, RETURNS_OTHER]),
        (9, [STALE, RETURNS_OTHER]),
        (10, [RETURNS_OTHER]),
    ],
)
def test_a_function_without_a_frame_is_left_by_its_own_instructions(tmp_path: Path, at: int, words: list[int]) -> None:
    """The old return address on its stack is passed over, and so is the frame pointer, which is its caller's."""
    later = AT + 4 * len(words) + 8
    case = Case(regs={"eip": EXE + AT_FRAMELESS + at, "ebp": later}, images=tmp_path)
    case.words = [*words, 0, 0, 0, RETURNS, 0]
    case.modules = (image(tmp_path),)
    assert [one.address for one in frames(case.crash())[1:3]] == [RETURNS_OTHER, RETURNS]


CALLING = bytes.fromhex("53 83ec08 e8f6ffffff 85c0 7402 ebfe 83c408 5b c3")
"""push ebx; sub esp, 8; call the function right before; test eax, eax; je +2; jmp to itself; add esp, 8; pop ebx; ret"""
LEAVING = bytes.fromhex("31c0 90 90 c3")
TAKING = bytes.fromhex("31c0 c20c00")
"""xor eax, eax; ret 12"""


@pytest.mark.parametrize(
    ("callee", "at", "words"),
    [
        (LEAVING, 0, [RETURNS]),
        (LEAVING, 4, [STALE, STALE, STALE, RETURNS]),
        (LEAVING, 9, [STALE, STALE, STALE, RETURNS]),
        # The callee takes the two words that were pushed for it, and a third one: what is left is smaller.
        (TAKING, 4, [STALE, STALE, STALE, STALE, STALE, STALE, RETURNS]),
        (TAKING, 9, [STALE, STALE, STALE, RETURNS]),
    ],
)
def test_a_function_without_a_frame_is_left_through_its_calls(
    tmp_path: Path, callee: bytes, at: int, words: list[int]
) -> None:
    """At its beginning, before its call and behind it; one way leads nowhere, the other one out."""
    code = bytearray(0x80)
    code[0:5], code[5 : 5 + len(CALLING)] = callee, CALLING
    code[0x40:0x45] = b"\xe8" + struct.pack("<i", 5 - 0x45)
    made = pe.Writer(machine=0x14C, base=EXE)
    made.section(".text", bytes(code), pe.CODE)
    (tmp_path / "app.exe").write_bytes(made.written(wide=False))
    case = Case(regs={"eip": EXE + 0x1005 + at, "ebp": 0x10}, words=[*words, 0], images=tmp_path)
    case.modules = (w.Module("C:\\a\\app.exe", EXE, made.size_of_image, made.timestamp),)
    assert frames(case.crash())[1].address == RETURNS


FALSE_CALLS = (bytes.fromhex("ffffff53"), bytes.fromhex("ffff50"), bytes.fromhex("ff14"), bytes.fromhex("ff5010ff15"))


@pytest.mark.parametrize("before", FALSE_CALLS, ids=bytes.hex)
def test_bytes_that_only_look_like_a_call_are_none(tmp_path: Path, before: bytes) -> None:
    """Parts of other instructions, as `call` with a negative distance and a `push` behind it have them."""
    code = bytearray(b"\x90" * 0x80)
    code[0x40 - len(before) : 0x40] = before
    made = pe.Writer(machine=0x14C, base=EXE)
    made.section(".text", bytes(code), pe.CODE)
    (tmp_path / "app.exe").write_bytes(made.written(wide=False))
    case = Case(regs={"eip": EXE + 0x1000, "ebp": 0x10}, words=[EXE + 0x1040, 0], images=tmp_path)
    case.modules = (w.Module("C:\\a\\app.exe", EXE, made.size_of_image, made.timestamp),)
    assert len(frames(case.crash())) == 1


@given(instructions=st.binary(max_size=200), wide=st.booleans())
def test_any_bytes_are_followed_to_an_end(instructions: bytes, wide: bool) -> None:
    way = epilogue.ahead(lambda at, size: instructions[at : at + size], 0, wide=wide)
    assert way is None or way == "framed" or (way.at >= 0 and way.after > way.at)


def test_only_what_a_call_returns_to_is_found(tmp_path: Path) -> None:
    case = Case(regs={"eip": EXE + AT_CALLEE + 6, "ebp": 0x10}, images=tmp_path)
    case.words = [STALE, EXE + 8, RETURNS_OTHER, RETURNS, 0]
    case.modules = (image(tmp_path),)
    # RETURNS_OTHER called the other function, and by its name: nothing tells where this one begins.
    assert found(case.crash())[1][1] == "scan"
    assert STALE not in [one.address for one in frames(case.crash())]


def test_a_null_read_names_the_register(tmp_path: Path) -> None:
    case = Case(regs={"eip": EXE + AT_CALLEE + 6, "ebp": AT + 16, "ecx": 0}, images=tmp_path)
    case.words = [0, 0, 0, 0, AT + 28, RETURNS, 0]
    case.modules = (image(tmp_path),)
    crash = case.crash()
    assert crash.instruction is not None and crash.instruction.text == "mov eax, dword ptr [ecx]"
    verdict = diagnose(crash, crash_rules()).verdict
    assert verdict is not None and (verdict.rule, verdict.confidence) == ("null-dereference", "certain")
    assert "register ecx" in verdict.summary


def test_a_fast_fail_without_its_parameter_has_it_in_ecx() -> None:
    memory = {EXE + 0x1000: b"\xcd\x29"}
    crash = Case(regs={"eip": EXE + 0x1000, "ecx": 2}, memory=memory, code=0xC0000409, parameters=()).crash()
    assert crash.exit is not None and crash.exit.ntstatus is not None and crash.exit.ntstatus.fast_fail is not None
    assert crash.exit.ntstatus.fast_fail.code == 2


# ---------------------------------------------------------------- x86: bounds, recursion, 64-bit dumps


def block_of_32_bits() -> bytes:
    block = bytearray(0x1000)
    struct.pack_into("<II", block, 4, HIGH, LOW + 0x3000)
    struct.pack_into("<I", block, 0x18, TEB)
    struct.pack_into("<I", block, 0xE0C, LOW)
    return bytes(block)


def test_a_recursion_fills_the_stack() -> None:
    """Frames of 16 bytes from the guard page to the top: bounds of the 32-bit block, one fold, its rule."""
    low = LOW + 0x3000
    words: list[int] = []
    for at in range(low, HIGH - 32, 16):
        words += [0, 0, at + 24, EXE + 0x1100]
    words += [0, 0, 0, NT + 0x1200, 0, 0, 0, 0]
    case = Case(regs={"eip": EXE + 0x1080, "ebp": low + 8}, words=words, pointer=low, teb=TEB)
    case.code, case.parameters, case.memory = 0xC00000FD, (1, low - 4), {TEB: block_of_32_bits()}
    crash = case.crash()
    thread = crash.crashed_thread
    assert thread is not None and thread.stack is not None
    assert thread.stack.guard_hit and thread.stack.high == HIGH
    assert thread.frames_total is not None and thread.frames_total > 60_000
    assert thread.folds and thread.folds[0].times > 60_000 and thread.folds[0].bytes_per_period == 16
    verdict = diagnose(crash, crash_rules()).verdict
    assert verdict is not None and verdict.rule == "stack-overflow-recursion"


@pytest.mark.parametrize(("probe", "size"), [("____chkstk_ms", 800_000), ("__chkstk", 900_000)])
def test_a_frame_that_was_about_to_be_laid_out_counts(tmp_path: Path, probe: str, size: int) -> None:
    """MinGW's helper pushes ecx and the size; Microsoft's has in ecx what the stack pointer is to become."""
    code = bytearray(0x100)
    code[0:7] = bytes.fromhex("51 50 8301 00 58 59")
    code[7] = 0xC3
    code[0x80:0x85] = b"\xe8" + struct.pack("<i", -0x85)
    made = pe.Writer(machine=0x14C, base=EXE)
    made.section(".text", bytes(code), pe.CODE)
    made.coff([(probe, 0, 1, 0x20, 2), ("_large", 0x60, 1, 0x20, 2)])
    (tmp_path / "app.exe").write_bytes(made.written(wide=False))
    pointer = HIGH - 64
    case = Case(regs={"eip": EXE + 0x1002, "ebp": HIGH - 40, "ecx": pointer - size}, pointer=pointer, teb=TEB)
    case.words = [size, 0, EXE + 0x1085, 0, 0, 0, HIGH - 32, NT + 0x1200, 0, 0, 0, 0, 0, 0, 0, 0]
    case.code, case.parameters, case.images = 0xC00000FD, (1, LOW + 0x2FF0), tmp_path
    case.memory = {TEB: block_of_32_bits()}
    case.modules = (w.Module("C:\\a\\app.exe", EXE, made.size_of_image, made.timestamp), *case.modules[2:])
    crash = case.crash()
    thread = crash.crashed_thread
    assert thread is not None and thread.largest[0].function == "large"
    assert size <= (thread.largest[0].stack_bytes or 0) < size + 64
    verdict = diagnose(crash, crash_rules()).verdict
    # The frame takes most of this stack, and would fit into a usual one.
    assert verdict is not None and verdict.rule == "stack-overflow-small-stack"
    assert verdict.culprit is not None and verdict.culprit.function == "large"


def test_32_bit_code_in_a_64_bit_dump_is_walked_as_such() -> None:
    context = bytearray(w.context(rip=EXE + 0x1000, rsp=AT, rbp=AT + 16, rax=0xFFFF_FFFF_0000_0001))
    struct.pack_into("<H", context, 0x38, 0x23)
    stack = struct.pack("<6I", 0, 0, 0, 0, 0, EXE + 0x1100)
    own = 0x7FFD0000
    memory = {AT: stack, own: struct.pack("<I", TEB).ljust(0x100, b"\0"), TEB: block_of_32_bits()}
    crash = Case(w.AMD64, context=bytes(context), memory=memory, teb=own).crash()
    assert crash.registers is not None and crash.registers["eip"] == EXE + 0x1000 and crash.registers["eax"] == 1
    assert frames(crash)[1].address == EXE + 0x1100
    thread = crash.crashed_thread
    assert thread is not None and thread.stack is not None
    assert (thread.stack.low, thread.stack.high) == (LOW, HIGH)


def test_a_context_of_32_bits_is_known_by_its_flags() -> None:
    context = w.context_x86(eip=EXE + 0x1000, esp=AT, ebp=AT)
    crash = Case(w.AMD64, context=context, memory={AT: struct.pack("<III", 0, EXE + 0x1100, 0)}).crash()
    assert [one.address for one in frames(crash)] == [EXE + 0x1000, EXE + 0x1100]


def test_whom_a_search_has_found_is_blamed_with_less_certainty(tmp_path: Path) -> None:
    """It died in the system's copy; the caller has a name, and a search or a frame pointer found it."""
    code = b"\x90" * 16 + b"\xe8" + bytes(4) + b"\x90" * 16
    made = pe.Writer(machine=0x14C, base=EXE)
    made.section(".text", code, pe.CODE)
    made.coff([("_culprit", 0, 1, 0x20, 2)])
    (tmp_path / "app.exe").write_bytes(made.written(wide=False))
    ours = w.Module("C:\\a\\app.exe", EXE, made.size_of_image, made.timestamp)
    verdicts = {}
    for how, frame in (("scan", 0x10), ("frame-pointer", AT)):
        words = [AT + 16, EXE + 0x1015, 0, 0, 0, 0]
        case = Case(regs={"eip": NT + 0x1000, "ebp": frame}, words=words, images=tmp_path)
        case.modules = (ours, w.Module("C:\\w\\ntdll.dll", NT, 0x9000))
        crash = case.crash()
        assert found(crash)[1] == (EXE + 0x1015, how)
        verdict = diagnose(crash, crash_rules()).verdict
        assert verdict is not None and verdict.culprit is not None and verdict.culprit.function == "culprit"
        verdicts[how] = verdict
    assert (verdicts["scan"].confidence, verdicts["frame-pointer"].confidence) == ("likely", "certain")
    assert any("guess" in one.claim for one in verdicts["scan"].evidence)


# ---------------------------------------------------------------- ARM64

ARM = (w.Module("C:\\a\\app.exe", FAR, 0x9000), w.Module("C:\\w\\ntdll.dll", FAR + 0x10_0000, 0x9000))
SIGNED = 0x00A5_0000_0000_0000
"""What pointer authentication puts above the bits of an address."""
STORES, LOADS, CALLS = 0xA9BF7BFD, 0xA8C17BFD, 0x97FFFFF0
"""stp x29, x30, [sp, #-16]!; ldp x29, x30, [sp], #16; bl"""
BEGINS = 0x910003FD
"""mov x29, sp"""
READS, RETURNS_ARM, JUMPS = 0xF9400008, 0xD65F03C0, 0xD61F0200
"""ldr x8, [x0]; ret; br x16"""


def code(*instructions: int) -> bytes:
    return struct.pack(f"<{len(instructions)}I", *instructions)


def arm(instructions: Sequence[int], **regs: int) -> Case:
    words = [AT + 32, (FAR + 0x1200) | SIGNED, 0, 0, 0, FAR + 0x10_1300, 0, 0]
    case = Case(w.ARM64, regs={"pc": FAR + 0x1000, "fp": AT} | regs, words=words, modules=ARM)
    case.memory = {FAR + 0x1000: code(*instructions)}
    return case


@pytest.mark.parametrize(
    ("instructions", "callers"),
    [
        ([READS, RETURNS_ARM], [0x1100, 0x1200]),
        ([READS, STORES, CALLS], [0x1100, 0x1200]),
        ([READS, LOADS, RETURNS_ARM], [0x1200]),
        ([READS, CALLS, LOADS], [0x1200]),
        ([READS, JUMPS], [0x1200]),
        ([READS, BEGINS, CALLS], [0x1100, 0x1200]),
        ([0xB4000060, READS, JUMPS, RETURNS_ARM], [0x1100, 0x1200]),
        ([0x36000060, READS, JUMPS, LOADS], [0x1200]),
        ([READS, 0x14000002, CALLS, RETURNS_ARM], [0x1100, 0x1200]),
        ([], [0x1200]),
    ],
)
def test_the_link_register_is_the_caller_where_the_code_says_so(instructions: list[int], callers: list[int]) -> None:
    crash = arm(instructions, lr=FAR + 0x1100).crash()
    expected = [(FAR + one, "registers" if one == 0x1100 else "frame-pointer") for one in callers]
    assert found(crash)[1 : 1 + len(callers)] == expected
    assert frames(crash)[-1].module == "ntdll.dll" and complete(crash)


def test_the_link_register_of_another_module_is_the_caller() -> None:
    assert found(arm([], lr=FAR + 0x10_1100).crash())[1] == (FAR + 0x10_1100, "registers")


def test_a_call_into_nothing_is_told_by_the_link_register() -> None:
    crash = arm([], pc=0x10, lr=(FAR + 0x1100) | SIGNED).crash()
    assert [one.address for one in frames(crash)[1:3]] == [FAR + 0x1100, FAR + 0x1200]


def test_arm64_is_searched_where_no_frame_pointer_leads() -> None:
    crash = arm([READS, CALLS], fp=0x10).crash()
    assert [how for _, how in found(crash)[1:3]] == ["scan", "scan"]


def test_a_null_read_of_arm64() -> None:
    crash = arm([READS, RETURNS_ARM], x0=0).crash()
    assert crash.instruction is not None and crash.instruction.text == "ldr x8, [x0]"
    verdict = diagnose(crash, crash_rules()).verdict
    assert verdict is not None and (verdict.rule, verdict.confidence) == ("null-dereference", "certain")
    assert "register x0" in verdict.summary


def test_a_fast_fail_of_arm64() -> None:
    case = arm([0xD43E0060], x0=7)
    case.code, case.parameters = 0xC0000409, ()
    crash = case.crash()
    assert crash.exit is not None and crash.exit.ntstatus is not None and crash.exit.ntstatus.fast_fail is not None
    assert crash.exit.ntstatus.fast_fail.code == 7


# ---------------------------------------------------------------- Linux

MAPS = f"""{FAR:x}-{FAR + 0x4000:x} r-xp 00000000 08:01 1 /opt/app
{FAR + 0x4000:x}-{FAR + 0x9000:x} r--p 00004000 08:01 1 /opt/app
"""


def linux(words: list[int], **regs: int) -> Case:
    case = Case(w.AMD64, regs={"rip": FAR + 0x1000} | regs, words=words, platform=0x8201, code=11)
    case.modules = (w.Module("/opt/app", FAR, 0x9000),)
    return case


def test_frame_pointers_lead_on_linux() -> None:
    crash = linux([0, AT + 32, FAR + 0x1100, 0, 0, FAR + 0x1200], rbp=AT + 8).crash()
    assert found(crash)[1:] == [(FAR + 0x1100, "frame-pointer"), (FAR + 0x1200, "frame-pointer")]
    assert complete(crash)
    gap = crash.gap("images")
    assert gap is not None and "Linux" in gap.why and "--images" not in gap.why


@pytest.mark.parametrize("rbp", [0, AT + 8])
def test_zeros_in_the_register_are_no_end_of_a_chain(rbp: int) -> None:
    """Code without frame pointers keeps what it likes in rbp; here nothing was followed."""
    crash = linux([0, 0, 0, 0, FAR + 0x1100], rbp=rbp).crash()
    assert len(frames(crash)) == 1 and complete(crash) is False


def test_a_search_on_linux_needs_to_know_what_is_code() -> None:
    words = [FAR + 0x5000, FAR + 0x1100, 0]
    assert len(frames(linux(words, rbp=1).crash())) == 1
    known = linux(words, rbp=1)
    known.more = [(0x47670009, w.raw(MAPS.encode()))]
    assert found(known.crash())[1:] == [(FAR + 0x1100, "scan")]


# ---------------------------------------------------------------- whatever may come


@given(
    architecture=st.sampled_from([w.X86, w.AMD64, w.ARM64]),
    words=st.lists(
        st.sampled_from([0, 1, AT, AT + 8, AT + 16, AT + 64, EXE + 0x1100, NT + 0x1200, FAR + 0x1100, 0xFFFF_FFFF]),
        max_size=40,
    ),
    numbers=st.lists(st.integers(0, (1 << 32) - 1) | st.integers(AT - 8, AT + 400), min_size=4, max_size=4),
    instructions=st.binary(max_size=64),
)
def test_every_walk_ends(architecture: int, words: list[int], numbers: list[int], instructions: bytes) -> None:
    names = {
        w.X86: ("eip", "ebp", "eax", "ecx"),
        w.AMD64: ("rip", "rbp", "rax", "rcx"),
        w.ARM64: ("pc", "fp", "lr", "x0"),
    }
    if architecture == w.X86:
        words = [one & 0xFFFF_FFFF for one in words]
    case = Case(architecture, regs=dict(zip(names[architecture], numbers, strict=True)), words=words, platform=0x8201)
    case.memory = {numbers[0]: instructions} if not AT - 64 < numbers[0] < AT + 400 else {}
    crash = case.crash()
    pointers = [one.stack_bytes for one in frames(crash)[:-1]]
    assert len(frames(crash)) <= len(words) + 2
    assert all(size is not None and size >= 0 for size in pointers)
