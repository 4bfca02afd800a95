"""What a stopped process of Windows shows, from dumps that were written for it byte by byte."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from necropsy.capture import open_minidump
from necropsy.capture.windows.modules import is_local
from necropsy.diagnose import diagnose
from necropsy.formats.exit_status import nt_status
from necropsy.formats.minidump import parse
from necropsy.model import Crash, Message, Stack
from necropsy.rules import crash_rules
from writers import minidump as w
from writers import pe

LOW, HIGH = 0x100000, 0x200000
"""The stack of the crashed thread."""
TEB, PEB = 0x7FF0_0000, 0x7FF1_0000
EXE, DLL = 0x7FF6_0000_0000, 0x1_8000_0000
COMMIT, RESERVE, FREE = 0x1000, 0x2000, 0x10000
PRIVATE, IMAGE = 0x20000, 0x1000000


def words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}Q", *values)


@dataclass
class Case:
    """A process with one thread in ``app.exe``; what a test says of it goes into the dump."""

    code: int = 0xC0000005
    parameters: Sequence[int] = (1, 0x10)
    address: int = EXE + 0x1234
    record: int = 0
    pointer: int = HIGH - 0x100
    stack: bytes = bytes(0x100)
    memory: dict[int, bytes] = field(default_factory=dict)
    regions: Sequence[tuple[int, int, int, int, int, int]] = ()
    modules: Sequence[w.Module] = (
        w.Module("C:\\app\\app.exe", EXE, 0x9000),
        w.Module("C:\\app\\python311.dll", DLL, 0x5000, version=(3, 11, 9150, 1013)),
        w.Module("C:\\cuda\\cudnn64_8.dll", DLL + 0x10_0000, 0x5000),
    )
    block: bool = True
    """The thread's own block is in the dump."""
    regs: dict[str, int] = field(default_factory=dict)
    more: Sequence[tuple[int, w.Blob]] = ()
    system: w.Blob | None = None
    excepted: bool = True
    images: tuple[Path, ...] = ()

    def written(self) -> bytes:
        regs = w.context(**({"rip": self.address, "rsp": self.pointer} | self.regs))
        memory = dict(self.memory)
        if self.block:
            block = bytearray(0x1500)
            struct.pack_into("<QQ", block, 8, HIGH, LOW + 0x8000)
            struct.pack_into("<Q", block, 0x60, PEB)
            struct.pack_into("<Q", block, 0x1478, LOW)
            memory[TEB] = bytes(block)
        streams = [
            (w.SYSTEM, self.system or w.system()),
            (w.THREADS, w.threads([w.Thread(10, regs, TEB, self.pointer, self.stack)])),
            (w.MODULES, w.modules(self.modules)),
            (w.MEMORY, w.memory(list(memory.items()))),
            *self.more,
        ]
        if self.excepted:
            regs = regs if self.system is None else b""
            record = w.exception(10, self.code, self.address, self.parameters, regs, record=self.record)
            streams.append((w.EXCEPTION, record))
        if self.regions:
            streams.append((w.MEMORY_INFO, w.memory_info(self.regions)))
        return w.minidump(streams)

    def crash(self) -> Crash:
        crash = open_minidump.crash_of(parse(self.written()), images=self.images)
        failed = [gap for gap in crash.gaps if "Error: " in gap.why]
        assert not failed, failed
        return crash


def said(crash: Crash, kind: str) -> Message:
    (found,) = [one for one in crash.messages or () if one.kind == kind]
    return found


# ---------------------------------------------------------------- how it ended


def test_an_access_violation() -> None:
    crash = Case().crash()
    assert crash.exit is not None and crash.exit.ntstatus is not None and crash.fault is not None
    assert (crash.exit.ntstatus.value, crash.exit.code) == ("0xC0000005", -1073741819)
    assert crash.exit.text == "exception code 0xC0000005 in app.exe+0x1234"
    assert (crash.fault.signal, crash.fault.access, crash.fault.address) == ("SIGSEGV", "write", 0x10)
    assert crash.registers is not None and crash.registers["rip"] == EXE + 0x1234
    assert crash.environment is not None
    assert (crash.environment.platform, crash.environment.python) == ("Windows 10.0.19045", "3.11.9")
    assert crash.environment.executable == "C:\\app\\app.exe"
    assert (crash.libraries or {})["cudnn64_8.dll"] == "8"
    thread = crash.crashed_thread
    assert thread is not None and thread.tid == 10 and thread.stack is not None and thread.stack.is_main


def test_a_fast_fail_has_its_subcode() -> None:
    crash = Case(code=0xC0000409, parameters=(7,)).crash()
    assert crash.fault is None
    assert crash.exit is not None and crash.exit.ntstatus is not None and crash.exit.ntstatus.fast_fail is not None
    assert crash.exit.ntstatus.fast_fail.name == "FAST_FAIL_FATAL_APP_EXIT"


def test_a_dump_of_a_living_process_has_no_fault() -> None:
    crash = Case(excepted=False).crash()
    assert crash.exit is not None and crash.exit.kind == "running"
    assert crash.fault is None and crash.gap("fault") is not None
    assert crash.crashed_thread is None and crash.threads is not None and len(crash.threads) == 1


@pytest.mark.parametrize("code", [0x517A7ED, 0, 0x406D1388, 0x40080201])
def test_a_dump_that_somebody_asked_for_is_no_death(code: int) -> None:
    crash = Case(code=code, parameters=()).crash()
    assert crash.exit is not None and crash.exit.kind == "running"
    assert crash.crashed_thread is None


@pytest.mark.parametrize("code", [0x4000, 0x1234, 0xE0001234, 0x00000001])
def test_any_number_may_be_raised_and_ends_the_process(code: int) -> None:
    """Unreal's failed assertions have 0x4000."""
    crash = Case(code=code, parameters=()).crash()
    assert crash.exit is not None and crash.exit.kind == "exited" and crash.exit.code == nt_status(code).signed
    assert crash.crashed_thread is not None
    verdict = diagnose(crash, crash_rules()).verdict
    assert verdict is not None and (verdict.rule, verdict.confidence) == ("exit-status-only", "possible")


NTDLL = 0x7FFE_0000_0000


@pytest.mark.parametrize(
    ("back", "kind"), [(EXE + 0x100, "exited"), (NTDLL + 0x200, "running"), (0x1234, "running"), (None, "running")]
)
def test_a_breakpoint_of_the_system_is_a_death_where_the_program_asked_for_it(back: int | None, kind: str) -> None:
    """DebugBreak() of the program ends in the same function of ntdll as a debugger that breaks in."""
    modules = [*Case().modules, w.Module("C:\\Windows\\System32\\ntdll.dll", NTDLL, 0x9000)]
    stack = words(back) + bytes(0xF8) if back is not None else b""
    crash = Case(code=0x80000003, parameters=(0,), address=NTDLL + 0x10, modules=modules, stack=stack).crash()
    assert crash.exit is not None and crash.exit.kind == kind


def test_a_jump_to_where_nobody_knows_what_lies_is_not_said_to_lead_to_no_memory() -> None:
    """A small dump has no list of what is mapped."""
    crash = Case(parameters=(8, 0x253400000019), address=0x253400000019).crash()
    verdict = diagnose(crash, crash_rules()).verdict
    assert verdict is not None and verdict.rule == "bad-jump"
    assert "where there is no code" in verdict.summary and "memory" not in verdict.summary


def test_floating_point_that_raises_is_told_as_it_is() -> None:
    crash = Case(code=0xC000008E, parameters=(0, 0x104)).crash()
    verdict = diagnose(crash, crash_rules()).verdict
    assert verdict is not None and verdict.rule == "exit-status-only"
    assert "_controlfp" in verdict.summary


@pytest.mark.parametrize(
    ("code", "rax", "wants"),
    [
        ("48830900", 5 << 20, "6 MiB"),  # MinGW's helper: rax is what is left
        ("45841b", 6 << 20, "6 MiB"),  # Microsoft's: all of it
        ("41c60300", 6 << 20, "6 MiB"),
        ("45841b", 0, "1 MiB"),  # what cannot be
        ("c60000", 6 << 20, "1 MiB"),  # another instruction: at least so far below the stack pointer
    ],
)
def test_a_large_frame_is_told_without_the_image(code: str, rax: int, wants: str) -> None:
    """The page that was touched lies far below the stack pointer: one call asked for all that is between."""
    crash = Case(
        code=0xC00000FD,
        parameters=(1, HIGH - 0x100 - (1 << 20)),
        pointer=HIGH - 0x100,
        regs={"rax": rax, "rcx": HIGH - 0x100 - (1 << 20), "r11": HIGH - 0x100 - (1 << 20)},
        memory={EXE + 0x1234: bytes.fromhex(code) + bytes(12)},
        block=False,
    ).crash()
    verdict = diagnose(crash, crash_rules()).verdict
    assert verdict is not None and verdict.rule == "stack-overflow-large-frame", verdict
    assert f"needs {wants} of stack" in verdict.summary


def test_an_instruction_that_uses_no_memory_did_not_fault() -> None:
    """The handler of a game engine had unwound to the caller; the register holds what the fault's address is."""
    code = bytes.fromhex("83f87f") + bytes(12)  # cmp eax, 0x7f
    crash = Case(parameters=(1, 0x7F), regs={"rax": 0x7F}, memory={EXE + 0x1234: code}).crash()
    assert crash.instruction is None and crash.gap("instruction") is not None
    assert crash.fault is not None and crash.fault.address == 0x7F


@pytest.mark.parametrize(("rcx", "rule"), [(0x6172747320746F6E, "invalid-read"), (0, "null-dereference")])
def test_linux_says_0_where_an_address_is_impossible(rcx: int, rule: str) -> None:
    """Of Breakpad on Linux without ``si_code``: libgcc's unwinder walked over a stack full of letters."""
    code = bytes.fromhex("803948") + bytes(12)  # cmp byte ptr [rcx], 0x48
    regs = w.context(rip=EXE + 0x1234, rsp=HIGH - 0x100, rcx=rcx)
    streams = [
        (w.SYSTEM, w.system(platform=0x8201)),
        (w.THREADS, w.threads([w.Thread(10, regs, 0, HIGH - 0x100, bytes(0x100))])),
        (w.MEMORY, w.memory([(EXE + 0x1234, code)])),
        (w.EXCEPTION, w.exception(10, 11, 0, (), regs)),
    ]
    verdict = diagnose(open_minidump.crash_of(parse(w.minidump(streams))), crash_rules()).verdict
    assert verdict is not None and verdict.rule == rule


def test_a_dump_that_lost_its_exception_is_not_taken_for_one_of_a_living_process() -> None:
    streams = [(w.SYSTEM, w.system()), (w.EXCEPTION, w.exception(10, 0xC0000005, 1, (0, 0)))]
    whole = w.minidump(streams)
    lost = w.minidump(streams, change=lambda kind, size, at: (size, 1 << 20 if kind == w.EXCEPTION else at))
    for data in (whole[:-180], whole[:-150], lost):
        crash = open_minidump.crash_of(parse(data))
        assert crash.exit is not None and crash.exit.kind == "unknown", crash.exit
        assert crash.fault is None and crash.gap("fault") is not None
        assert diagnose(crash, crash_rules()).verdict is None


def test_procdump_says_the_exception_in_its_comment() -> None:
    comment = b"\r\n*** procdump -e app.exe\r\n*** Unhandled exception: C0000374.HEAP_CORRUPTION\0"
    crash = Case(excepted=False, more=[(w.COMMENT_A, w.raw(comment))]).crash()
    assert crash.exit is not None and crash.exit.ntstatus is not None
    assert crash.exit.ntstatus.value == "0xC0000374"


def test_a_first_chance_may_have_been_survived() -> None:
    comment = b"*** procdump -e 1 app.exe\r\n*** First chance exception: C0000005.ACCESS_VIOLATION\0"
    assert Case(more=[(w.COMMENT_A, w.raw(comment))]).crash().gap("exit") is not None
    assert Case().crash().gap("exit") is None


def test_code_of_a_library_that_was_unloaded() -> None:
    gone = [(w.UNLOADED, w.unloaded([(0x5_0000_0000, 0x3000, 7, "C:\\app\\gone.dll")]))]
    crash = Case(address=0x5_0000_1234, parameters=(8, 0x5_0000_1234), more=gone).crash()
    assert said(crash, "unloaded-library").fields == {
        "library": "gone.dll",
        "address": "0x500001234",
        "offset": "0x1234",
    }
    assert not Case(address=0x5_0000_3000, parameters=(8, 0x5_0000_3000), more=gone).crash().messages


def test_the_thread_of_the_exception_may_be_missing_from_the_list() -> None:
    regs = w.context(rip=EXE + 1, rsp=HIGH - 8)
    streams = [(w.SYSTEM, w.system()), (w.EXCEPTION, w.exception(99, 0xC0000005, EXE + 1, (0, 0), regs))]
    crash = open_minidump.crash_of(parse(w.minidump(streams)))
    assert crash.crashed_thread is not None and crash.crashed_thread.tid == 99
    assert crash.registers is not None and crash.registers["rip"] == EXE + 1


def test_without_registers_the_rest_is_told() -> None:
    streams = [(w.SYSTEM, w.system()), (w.EXCEPTION, w.exception(99, 0xC0000005, EXE + 1, (0, 0)))]
    crash = open_minidump.crash_of(parse(w.minidump(streams)))
    assert crash.fault is not None and crash.fault.address == 0
    assert crash.gap("registers") is not None


def test_threads_have_names_and_the_oldest_is_the_main_one() -> None:
    threads = w.threads(
        [w.Thread(30, w.context(rip=1)), w.Thread(31, w.context(rip=1)), w.Thread(32, w.context(rip=1))]
    )
    streams = [
        (w.SYSTEM, w.system()),
        (w.THREADS, threads),
        (w.THREAD_NAMES, w.thread_names([(31, "MainThread"), (30, "tf_Compute")])),
        (w.THREAD_INFO, w.thread_info([(30, 0, 500, 0), (31, 0, 100, 0), (32, 4, 50, 0)])),
        (w.MEMORY_INFO, w.memory_info([(0, 0, 0x1000, COMMIT, 4, PRIVATE)])),
    ]
    crash = open_minidump.crash_of(parse(w.minidump(streams)))
    assert [(one.tid, one.name) for one in crash.threads or ()] == [(30, "tf_Compute"), (31, "MainThread")]


@pytest.mark.parametrize(
    ("code", "at", "dies"),
    [
        (0x80000003, DLL + 0x20_1000, False),  # in ntdll.dll: a debugger broke in
        (0x80000003, EXE + 0x1234, True),  # int3 of the program's own
        (0x40010005, EXE + 0x1234, False),  # Ctrl-C
        (0x80000007, EXE + 0x1234, False),
        (0x406D1388, EXE + 0x1234, False),  # a thread's name
    ],
)
def test_what_a_debugger_does_is_no_death(code: int, at: int, dies: bool) -> None:
    modules = [*Case().modules, w.Module("C:\\Windows\\System32\\\\ntdll.dll", DLL + 0x20_0000, 0x9000)]
    crash = Case(code=code, address=at, parameters=(), modules=modules).crash()
    assert crash.exit is not None and (crash.exit.kind == "running") is not dies
    assert (crash.crashed_thread is not None) is dies


def test_why_a_page_could_not_be_read() -> None:
    crash = Case(code=0xC0000006, parameters=(0, 0x5000, 0xC000009C)).crash()
    assert crash.exit is not None and crash.exit.text is not None
    assert crash.exit.text.endswith("app.exe+0x1234, status 0xC000009C")


# ---------------------------------------------------------------- the stack


def stack_of(case: Case) -> Stack | None:
    """Of the first thread."""
    threads = case.crash().threads
    assert threads
    return threads[0].stack


def test_bounds_by_the_threads_own_block() -> None:
    stack = stack_of(Case())
    assert stack is not None
    assert (stack.low, stack.high, stack.size, stack.used) == (LOW, HIGH, HIGH - LOW, 0x100)
    assert stack.guard_hit is False


def test_bounds_by_the_list_of_regions() -> None:
    regions = [
        (LOW, LOW, 0x1000, RESERVE, 0, PRIVATE),
        (LOW + 0x1000, LOW, 0x2000, COMMIT, 0x104, PRIVATE),
        (LOW + 0x3000, LOW, HIGH - LOW - 0x3000, COMMIT, 4, PRIVATE),
        (HIGH, HIGH, 0x1000, COMMIT, 4, PRIVATE),
    ]
    stack = stack_of(Case(block=False, regions=regions))
    assert stack is not None and (stack.low, stack.high, stack.size) == (LOW, HIGH, HIGH - LOW)


def test_without_either_only_the_upper_end_is_known() -> None:
    stack = stack_of(Case(block=False))
    assert stack is not None and (stack.low, stack.high, stack.size, stack.used) == (None, HIGH, None, 0x100)


def test_a_thread_on_a_fiber_has_the_bounds_of_its_dump_only() -> None:
    stack = stack_of(Case(pointer=0x900000))
    assert stack is not None and (stack.low, stack.high) == (None, 0x900100)


def test_a_stack_overflow() -> None:
    crash = Case(code=0xC00000FD, parameters=(1, LOW + 0x1FF8), pointer=LOW + 0x2008, stack=bytes(0x200)).crash()
    thread, fault = crash.crashed_thread, crash.fault
    assert thread is not None and thread.stack is not None and fault is not None
    assert (fault.signal, fault.access, fault.address) == ("SIGSEGV", "write", LOW + 0x1FF8)
    assert thread.stack.guard_hit is True
    assert (thread.stack.low, thread.stack.guard, thread.stack.size) == (LOW + 0x2000, 0x2000, HIGH - LOW)
    assert thread.stack.used == HIGH - (LOW + 0x2008)
    verdict = diagnose(crash, crash_rules()).verdict
    assert verdict is not None and verdict.rule.startswith("stack-overflow")


def test_a_stack_overflow_of_which_nothing_else_is_known() -> None:
    crash = Case(code=0xC00000FD, parameters=(), block=False, stack=b"").crash()
    thread = crash.crashed_thread
    assert thread is not None and thread.stack is not None and thread.stack.guard_hit is True


@pytest.mark.parametrize(("low", "size"), [(LOW, 0x100000), (LOW - 0x10000, None)])
def test_where_the_block_is_missing_the_header_tells_the_size(low: int, size: int | None, tmp_path: Path) -> None:
    """Only where what was touched lies at the lower end that follows from it."""
    image = pe.Writer(reserve=0xF4240)  # Windows reserves whole pieces of 64 KiB
    image.section(".text", b"\xc3" * 64, pe.CODE)
    (tmp_path / "app.exe").write_bytes(image.written())
    module = w.Module("C:\\app\\app.exe", EXE, image.size_of_image, image.timestamp)
    case = Case(code=0xC00000FD, parameters=(1, low + 0x1FF8), block=False, modules=[module], images=(tmp_path,))
    thread = case.crash().crashed_thread
    assert thread is not None and thread.stack is not None
    assert (thread.stack.guard_hit, thread.stack.size) == (True, size)
    assert thread.stack.low == (LOW + 0x2000 if size else None)


@pytest.mark.parametrize(
    ("address", "pointer", "hit"),
    [
        (LOW + 0xFF8, LOW + 0x1008, True),  # the guard page was used up before: now it is a plain violation
        (LOW - 0x2000, LOW + 0x800, True),  # a probe ahead of a large frame
        (LOW - 0x2000, HIGH - 0x100, False),  # far below the stack pointer: no push, and no probe
        (LOW - 0x20000, LOW + 0x800, False),
        (LOW + 0x80000, LOW + 0x90000, False),
        (0x10, LOW + 0x800, False),
    ],
)
def test_a_violation_below_the_stack_is_an_overflow(address: int, pointer: int, hit: bool) -> None:
    crash = Case(parameters=(1, address), pointer=pointer, stack=bytes(0x100)).crash()
    thread = crash.crashed_thread
    assert thread is not None and thread.stack is not None
    assert thread.stack.guard_hit is hit


def test_the_executables_reserve_is_read_from_its_header(tmp_path: Path) -> None:
    image = pe.Writer(reserve=2_000_000)
    image.section(".text", b"\xc3" * 64, pe.CODE)
    (tmp_path / "app.exe").write_bytes(image.written())
    module = w.Module("C:\\app\\app.exe", EXE, image.size_of_image, image.timestamp)
    assert Case(modules=[module], images=(tmp_path,)).crash().stack_reserve == 2_000_000
    other = w.Module("C:\\app\\app.exe", EXE, image.size_of_image, image.timestamp + 1)
    assert Case(modules=[other], images=(tmp_path,)).crash().stack_reserve is None


# ---------------------------------------------------------------- what lies at the address


@pytest.mark.parametrize(
    ("state", "protect", "kind", "permissions"),
    [
        (COMMIT, 0x02, IMAGE, "r--p"),
        (COMMIT, 0x04, PRIVATE, "rw-p"),
        (COMMIT, 0x08, IMAGE, "rw-p"),
        (COMMIT, 0x20, IMAGE, "r-xp"),
        (COMMIT, 0x40, PRIVATE, "rwxp"),
        (COMMIT, 0x01, PRIVATE, "---p"),
        (COMMIT, 0x104, PRIVATE, "---p"),
        (COMMIT, 0x04, 0x40000, "rw-s"),
        (RESERVE, 0, PRIVATE, None),
        (FREE, 1, 0, None),
    ],
)
def test_memory_in_the_words_of_linux(state: int, protect: int, kind: int, permissions: str | None) -> None:
    at = DLL + 0x1000
    regions = [(DLL, DLL, 0x1000, COMMIT, 2, IMAGE), (at, DLL, 0x2000, state, protect, kind)]
    fault = Case(parameters=(1, at + 8), regions=regions).crash().fault
    assert fault is not None
    assert fault.code == ("SEGV_ACCERR" if permissions else "SEGV_MAPERR")
    if permissions is None:
        assert fault.mapping is None
        assert fault.mapping_below is not None and fault.mapping_below.high == at
    else:
        assert fault.mapping is not None
        assert (fault.mapping.low, fault.mapping.high, fault.mapping.permissions) == (at, at + 0x2000, permissions)
        assert fault.mapping.path == "C:\\app\\python311.dll"


def test_code_on_the_stack_is_no_hole() -> None:
    fault = Case(parameters=(8, HIGH - 0x80), address=HIGH - 0x80).crash().fault
    assert fault is not None and fault.code == "SEGV_ACCERR"
    assert fault.mapping is not None and fault.mapping.permissions == "rw-p"
    written = Case(parameters=(1, HIGH - 0x80)).crash().fault
    assert written is not None and (written.code, written.mapping) == (None, None)


def test_the_section_of_an_image_stands_for_the_list_of_regions(tmp_path: Path) -> None:
    image = pe.Writer()
    text = image.section(".text", b"\xc3" * 64, pe.CODE)
    data = image.section(".data", b"\0" * 64, pe.DATA)
    (tmp_path / "app.exe").write_bytes(image.written())
    modules = [w.Module("C:\\app\\app.exe", EXE, image.size_of_image, image.timestamp)]
    fault = Case(parameters=(1, EXE + text), modules=modules, images=(tmp_path,)).crash().fault
    assert fault is not None and fault.mapping is not None
    assert (fault.code, fault.mapping.permissions, fault.mapping.low) == ("SEGV_ACCERR", "r-xp", EXE + text)
    allowed = Case(parameters=(1, EXE + data), modules=modules, images=(tmp_path,)).crash().fault
    assert allowed is not None and allowed.mapping is None


def test_what_may_not_be_executed_is_no_instruction() -> None:
    crash = Case(parameters=(8, 0x5000), address=0x5000, memory={0x5000: b"\0" * 64}).crash()
    assert crash.instruction is not None and crash.instruction.text is None
    assert crash.fault is not None and crash.fault.access == "exec"


def test_the_instruction_comes_from_the_dump() -> None:
    crash = Case(regs={"rcx": 0x10}, memory={EXE + 0x1234: bytes.fromhex("c70101000000") + bytes(20)}).crash()
    assert crash.instruction is not None and crash.instruction.text == "mov dword ptr [rcx], 1"
    (operand,) = crash.instruction.operands
    assert (operand.address, operand.access, operand.registers) == (0x10, "write", {"rcx": 0x10})


@pytest.mark.parametrize(
    ("path", "windows", "asked"),
    [
        ("C:\\app\\a.dll", True, True),
        ("\\\\server\\share\\a.dll", True, False),
        ("//server/share/a.dll", True, False),
        ("\\\\?\\UNC\\server\\share\\a.dll", True, False),
        ("\\\\.\\pipe\\x", True, False),
        ("C:a.dll", True, False),
        ("a.dll", True, False),
        ("", True, False),
        ("/usr/lib/libx.so", False, True),
        ("C:\\app\\a.dll", False, False),
    ],
)
def test_a_dump_cannot_have_another_machine_asked(path: str, windows: bool, asked: bool) -> None:
    assert is_local(path, windows=windows) is asked


# ---------------------------------------------------------------- exceptions of C++

OBJECT, TEXT = 0x30_0000, 0x31_0000
INFO = 0x2000


def thrown(types: Sequence[str], *, offset: int = 0) -> dict[int, bytes]:
    """ThrowInfo in the DLL at ``INFO``: as which types it may be caught; ``offset`` of the part of each in the object."""
    table, rows, names = INFO + 0x20, INFO + 0x100, INFO + 0x800
    body = bytearray(0x1000)
    struct.pack_into("<IIII", body, 0, 0, 0, 0, table)
    struct.pack_into("<I", body, table - INFO, len(types))
    for index, name in enumerate(types):
        row, descriptor = rows + 28 * index, names + 0x80 * index
        struct.pack_into("<I", body, table - INFO + 4 + 4 * index, row)
        part = offset if index else 0
        struct.pack_into("<IIiiiII", body, row - INFO, 0, descriptor, part, -1, 0, 24, 0)
        struct.pack_into("<QQ", body, descriptor - INFO, DLL + 0x4000, 0)
        body[descriptor - INFO + 16 : descriptor - INFO + 17 + len(name)] = name.encode() + b"\0"
    return {DLL + INFO: bytes(body)}


BROKEN = (".?AVBroken@app@@", ".?AVruntime_error@std@@", ".?AVexception@std@@")


def exception_object(at: int = 0) -> dict[int, bytes]:
    """``std::exception`` of Visual C++: its vtable, a pointer to its text, and whether that is its own."""
    return {OBJECT: bytes(at) + words(DLL + 0x3000, TEXT, 1), TEXT: b"7 is not 3\0"}


@pytest.mark.parametrize("offset", [0, 16])
def test_microsofts_cpp_exception(offset: int) -> None:
    memory = thrown(BROKEN, offset=offset) | exception_object(offset)
    crash = Case(code=0xE06D7363, parameters=(0x19930520, OBJECT, DLL + INFO, DLL), memory=memory).crash()
    assert crash.cpp_exception is not None
    assert (crash.cpp_exception.type, crash.cpp_exception.what) == ("app::Broken", "7 is not 3")
    verdict = diagnose(crash, crash_rules()).verdict
    assert verdict is not None and verdict.rule == "uncaught-cpp-exception" and "app::Broken" in verdict.summary


def test_names_of_types_may_come_from_the_file(tmp_path: Path) -> None:
    """They lie where data may be written, which a small dump does not hold and the file is not trusted for."""
    parts = thrown(BROKEN)[DLL + INFO]
    image = pe.Writer()
    image.section(".text", bytes(0x1000), pe.CODE)
    assert image.section(".data", parts, pe.DATA) == INFO
    (tmp_path / "python311.dll").write_bytes(image.written())
    modules = [w.Module("C:\\app\\python311.dll", DLL, image.size_of_image, image.timestamp)]
    # The dump holds all but the names.
    memory = {DLL + INFO: parts[:0x800]} | exception_object()
    parameters = (0x19930520, OBJECT, DLL + INFO, DLL)
    case = Case(code=0xE06D7363, parameters=parameters, memory=memory, modules=modules, images=(tmp_path,))
    found = case.crash().cpp_exception
    assert found is not None and (found.type, found.what) == ("app::Broken", "7 is not 3")


def test_a_text_that_was_thrown() -> None:
    memory = thrown([".PEBD", ".PEAX"]) | {OBJECT: words(TEXT), TEXT: b"no\0"}
    crash = Case(code=0xE06D7363, parameters=(0x19930520, OBJECT, DLL + INFO, DLL), memory=memory).crash()
    assert crash.cpp_exception is not None
    assert (crash.cpp_exception.type, crash.cpp_exception.what) == ("char const*", "no")


@pytest.mark.parametrize("text", [b"short", b"a text of more than fifteen letters"])
def test_a_string_that_was_thrown(text: bytes) -> None:
    letters = text.ljust(16, b"\0") if len(text) < 16 else words(TEXT, 0)
    memory = thrown([".?AV?$basic_string@DU?$char_traits@D@std@@V?$allocator@D@2@@std@@"])
    memory |= {OBJECT: letters + words(len(text), 15 if len(text) < 16 else 47), TEXT: text}
    crash = Case(code=0xE06D7363, parameters=(0x19930520, OBJECT, DLL + INFO, DLL), memory=memory).crash()
    assert crash.cpp_exception is not None
    assert (crash.cpp_exception.type, crash.cpp_exception.what) == ("std::string", text.decode())


def test_torchs_errors_hold_their_text_elsewhere() -> None:
    text = b"The size of tensor a (3) must match the size of tensor b (7)"
    memory = thrown([".?AVIndexError@c10@@", ".?AVError@c10@@", ".?AVexception@std@@"])
    memory |= {OBJECT: words(DLL + 0x3000, 0, 0) + words(TEXT, 0, len(text), 63), TEXT: text}
    crash = Case(code=0xE06D7363, parameters=(0x19930520, OBJECT, DLL + INFO, DLL), memory=memory).crash()
    assert crash.cpp_exception is not None
    assert (crash.cpp_exception.type, crash.cpp_exception.what) == ("c10::IndexError", text.decode())


def test_what_of_an_exception_is_not_in_the_dump_is_a_gap() -> None:
    crash = Case(code=0xE06D7363, parameters=(0x19930520, OBJECT, DLL + INFO, DLL)).crash()
    assert crash.cpp_exception is None and crash.gap("cpp_exception") is not None
    typed = Case(code=0xE06D7363, parameters=(0x19930520, OBJECT, DLL + INFO, DLL), memory=thrown(BROKEN)).crash()
    assert typed.cpp_exception is not None
    assert (typed.cpp_exception.type, typed.cpp_exception.what) == ("app::Broken", None)


def test_abort_leaves_the_record_of_the_throw_on_the_stack() -> None:
    record = struct.pack("<IIQQI4x", 0xE06D7363, 0x81, 0, DLL + 0x99, 4) + words(0x19930520, OBJECT, DLL + INFO, DLL)
    stack = bytes(0x40) + record.ljust(0xC0, b"\0")
    memory = thrown(BROKEN) | exception_object()
    crash = Case(code=0xC0000409, parameters=(7,), stack=stack, memory=memory).crash()
    assert crash.cpp_exception is not None
    assert (crash.cpp_exception.type, crash.cpp_exception.what) == ("app::Broken", "7 is not 3")
    # A violation is no end by the program itself: what was thrown before it was caught.
    assert Case(stack=stack, memory=memory).crash().cpp_exception is None


def test_an_exception_within_an_exception() -> None:
    inner = 0x32_0000
    record = struct.pack("<IIQQI4x", 0xE06D7363, 0x81, 0, DLL + 0x99, 4) + words(0x19930520, OBJECT, DLL + INFO, DLL)
    memory = thrown(BROKEN) | exception_object() | {inner: record.ljust(152, b"\0")}
    crash = Case(code=0xC0000026, parameters=(), record=inner, memory=memory).crash()
    assert crash.cpp_exception is not None and crash.cpp_exception.type == "app::Broken"


def test_records_that_point_to_each_other_end() -> None:
    inner = 0x32_0000
    record = struct.pack("<IIQQI4x", 0xC0000026, 0, inner, 0, 0).ljust(152, b"\0")
    assert Case(code=0xC0000026, parameters=(), record=inner, memory={inner: record}).crash().cpp_exception is None


def test_gccs_cpp_exception() -> None:
    header, info, vtable, name = 0x33_0080, 0x34_0000, 0x35_0000, 0x36_0000
    before = words(info, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    unwind = words(0x474E5543432B2B00, 0, 0, 0, 0, 0, 0, 0)
    memory = {
        header - 80: before + unwind + words(0x37_0000, TEXT),
        TEXT: b"bad index\0",
        info: words(vtable, name),
        name: b"St13runtime_error\0",
        vtable - 8: words(info, 0, 0, 0),
    }
    crash = Case(code=0x20474343, parameters=(header,), memory=memory).crash()
    assert crash.cpp_exception is not None
    assert (crash.cpp_exception.type, crash.cpp_exception.what) == ("std::runtime_error", "bad index")


# ---------------------------------------------------------------- what records point to


def delayed(*, by_name: bool, procedure: int, error: int = 126) -> dict[int, bytes]:
    head = struct.pack("<I4xQQQI4xQQQI4x", 72, DLL, 0, 0x41_0000, by_name, procedure, 0, 0, error)
    return {0x40_0000: head, 0x41_0000: b"cudart64_110.dll\0", 0x42_0000: b"cudaMalloc\0"}


def test_a_delayed_dll_that_did_not_come_is_named() -> None:
    crash = Case(code=0xC06D007E, parameters=(0x40_0000,), memory=delayed(by_name=True, procedure=0x42_0000)).crash()
    assert said(crash, "delay-load-module").fields == {"dll": "cudart64_110.dll", "error": "126"}


@pytest.mark.parametrize(("by_name", "procedure", "told"), [(True, 0x42_0000, "cudaMalloc"), (False, 12, "ordinal 12")])
def test_a_delayed_procedure_that_did_not_come_is_named(by_name: bool, procedure: int, told: str) -> None:
    memory = delayed(by_name=by_name, procedure=procedure, error=127)
    crash = Case(code=0xC06D007F, parameters=(0x40_0000,), memory=memory).crash()
    assert said(crash, "delay-load-procedure").fields == {"dll": "cudart64_110.dll", "procedure": told, "error": "127"}


def test_a_delayed_dll_whose_record_is_not_in_the_dump() -> None:
    assert not Case(code=0xC06D007E, parameters=(0x40_0000,)).crash().messages


def test_what_the_heap_found() -> None:
    memory = {0x50_0000: struct.pack("<III4xQQ", 2, 0x100, 8, 0x60_0000, 0x60_1230)}
    crash = Case(code=0xC0000374, parameters=(0x50_0000,), memory=memory).crash()
    fields = said(crash, "heap-failure").fields
    assert (fields["failure"], fields["block"]) == ("8", "0x601230")
    assert "freed twice" in fields["what"]


# ---------------------------------------------------------------- last words

CHECK = b"F0000 00:00:1700000000.123456    4711 matmul_op.cc:77] Check failed: a == b (3 vs. 7) shapes differ"


def test_a_failed_check_on_the_stack() -> None:
    crash = Case(code=0xC0000409, parameters=(7,), stack=(bytes(16) + CHECK).ljust(0x100, b"\0")).crash()
    assert "a == b (3 vs. 7)" in said(crash, "check-failed").text
    assert said(crash, "check-failed").where == "memory of thread 10"


def test_a_line_that_only_memory_has_is_not_certain() -> None:
    """No function that reports a CHECK is on the stack: the program may have read or quoted the line."""
    crash = Case(code=0xC0000409, parameters=(7,), stack=(bytes(16) + CHECK).ljust(0x100, b"\0")).crash()
    verdict = diagnose(crash, crash_rules()).verdict
    assert verdict is not None and (verdict.rule, verdict.confidence) == ("check-failed", "likely")


def test_a_failed_check_where_the_stack_points_to() -> None:
    heap = 0x70_0000
    stack = (words(0, heap + 0x100)).ljust(0x100, b"\0")
    memory = {heap: (bytes(0x200) + CHECK).ljust(0x9000, b"\0")}
    regions = [(heap, heap, 0x9000, COMMIT, 4, PRIVATE), (LOW, LOW, HIGH - LOW, COMMIT, 4, PRIVATE)]
    for case in (
        Case(code=0xC0000409, parameters=(7,), stack=stack, memory=memory),
        Case(code=0xC0000409, parameters=(7,), stack=stack, memory=memory, regions=regions),
    ):
        assert "a == b (3 vs. 7)" in said(case.crash(), "check-failed").text


def test_words_that_are_not_its_end_are_none() -> None:
    quoted = (bytes(16) + b"caught: Check failed: a == b (3 vs. 7) shapes differ").ljust(0x100, b"\0")
    assert not Case(code=0xC0000409, parameters=(7,), stack=quoted).crash().messages
    violation = (bytes(16) + CHECK).ljust(0x100, b"\0")
    assert not Case(stack=violation).crash().messages


def test_breakpads_handlers_are_heard() -> None:
    texts = [text.encode("utf-16-le").ljust(256, b"\0") for text in ("p != 0", "strcpy_s", "x.cc")]
    for kind, name in ((1, "crt-invalid-parameter"), (2, "pure-virtual")):
        stream = w.raw(b"".join(texts) + struct.pack("<II", 7, kind))
        assert said(Case(more=[(0x47670002, stream)]).crash(), name).where == "the dump"


# ---------------------------------------------------------------- surroundings


def test_only_harmless_variables_are_kept() -> None:
    parameters, block = 0x80_0000, 0x81_0000
    text = "=C:=C:\\app\0OMP_NUM_THREADS=4\0PATH=C:\\secret\0TF_ENABLE_ONEDNN_OPTS=0\0\0".encode("utf-16-le")
    body = bytearray(0x400)
    struct.pack_into("<Q", body, 0x80, block)
    struct.pack_into("<Q", body, 0x3F0, len(text))
    memory = {PEB: bytes(0x20) + words(parameters), parameters: bytes(body), block: text}
    environment = Case(memory=memory).crash().environment
    assert environment is not None
    assert environment.variables == {"OMP_NUM_THREADS": "4", "TF_ENABLE_ONEDNN_OPTS": "0"}


# ---------------------------------------------------------------- other machines and systems


def test_addresses_of_32_bits_are_not_extended() -> None:
    regs = w.context_x86(eip=0x401234, esp=0x19FF00)
    streams = [
        (w.SYSTEM, w.system(architecture=w.X86)),
        (w.EXCEPTION, w.exception(1, 0xC0000005, 0x401234, (0, 0xFFFF_FFFF_8000_0045), regs)),
    ]
    fault = open_minidump.crash_of(parse(w.minidump(streams))).fault
    assert fault is not None and fault.address == 0x8000_0045


@pytest.mark.parametrize(
    ("code", "flags", "signal", "named", "address"),
    [
        (11, 1, "SIGSEGV", "SEGV_MAPERR", 0x10),
        (6, 0xFFFFFFFA, "SIGABRT", "SI_TKILL", None),
        (8, 1, "SIGFPE", "FPE_INTDIV", 0x10),
        (7, 2, "SIGBUS", "BUS_ADRERR", 0x10),
        (36, 0, "SIGRTMIN+2", "SI_USER", None),
    ],
)
def test_breakpad_on_linux(code: int, flags: int, signal: str, named: str, address: int | None) -> None:
    streams = [
        (w.SYSTEM, w.system(platform=0x8201, version=(6, 1, 0))),
        (w.EXCEPTION, w.exception(77, code, 0x10, flags=flags)),
        (0x47670004, w.raw(b"Name:\tx\nPid:\t4711\n")),
        (0x47670007, w.raw(b"SECRET=x\0OMP_NUM_THREADS=4\0")),
    ]
    crash = open_minidump.crash_of(parse(w.minidump(streams)))
    assert crash.exit is not None and (crash.exit.kind, crash.exit.signal) == ("signaled", signal)
    assert crash.fault is not None
    assert (crash.fault.signal, crash.fault.code, crash.fault.address) == (signal, named, address)
    assert crash.pid == 4711
    assert crash.environment is not None and crash.environment.variables == {"OMP_NUM_THREADS": "4"}
    assert crash.environment.platform == "Linux 6.1.0"
    gap = crash.gap("frames")
    assert gap is not None and "Linux" in gap.why


@pytest.mark.parametrize(
    ("code", "flags", "signal", "named"),
    [
        (1, 1, "SIGSEGV", "SEGV_MAPERR"),
        (1, 13, "SIGSEGV", "SI_KERNEL"),
        (3, 1, "SIGFPE", "FPE_INTDIV"),
        (10, 0, "SIGABRT", None),
        (5, 0x10003, "SIGBUS", None),  # EXC_SOFT_SIGNAL: the number below is the signal's, as macOS counts them
    ],
)
def test_crashpad_on_macos(code: int, flags: int, signal: str, named: str | None) -> None:
    streams = [
        (w.SYSTEM, w.system(platform=0x8101, version=(14, 5, 0))),
        (w.EXCEPTION, w.exception(77, code, 10 if code == 5 else 0x10, flags=flags)),
    ]
    crash = open_minidump.crash_of(parse(w.minidump(streams)))
    assert crash.fault is not None and (crash.fault.signal, crash.fault.code) == (signal, named)


def test_a_dump_that_was_asked_for_on_linux() -> None:
    streams = [(w.SYSTEM, w.system(platform=0x8201)), (w.EXCEPTION, w.exception(77, 0xFFFFFFFF, 0))]
    crash = open_minidump.crash_of(parse(w.minidump(streams)))
    assert crash.exit is not None and crash.exit.kind == "running" and crash.fault is None
