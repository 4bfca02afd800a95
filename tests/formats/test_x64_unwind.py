"""Callers by UNWIND_INFO: prologues are run on a small machine, and undone after each of their instructions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from necropsy.errors import InputError
from necropsy.formats import pe
from necropsy.formats.x64_unwind import LEAF, REGISTERS, Unwinder, UnwindRow, unwind_info
from writers import pe as write

TOP = 0x7FFF00000000
RETURN = 0x140001234
CALLER = {name: 0x1111111111111111 * (number % 15 + 1) for number, name in enumerate(REGISTERS)} | {"rsp": TOP + 8}
"""The caller's registers once the function has returned."""


@dataclass
class Machine:
    """Registers and a stack, at the first instruction of a function that was just called."""

    registers: dict[str, int] = field(default_factory=lambda: CALLER | {"rsp": TOP})
    memory: dict[int, int] = field(default_factory=lambda: {TOP: RETURN})

    def push(self, value: int) -> None:
        self.registers["rsp"] -= 8
        self.memory[self.registers["rsp"]] = value

    def undo(self, row: UnwindRow) -> dict[str, int]:
        """The caller's registers as the row says them."""
        base = self.registers[REGISTERS[row.base]]
        found = dict(self.registers)
        for one in row.saved:
            found[REGISTERS[one.register]] = self.memory[self.registers[REGISTERS[one.base]] + one.distance]
        at = base + row.returns_at
        found["rip"] = self.memory[at]
        found["rsp"] = self.memory[at + 24] if row.machine else at + 8
        return found


KEPT = ["rbx", "rbp", "rsi", "rdi", "r12", "r13", "r14", "r15"]


def an_image(code: bytes, infos: Sequence[tuple[int, int, bytes]], *, extra: bytes = b"") -> tuple[Unwinder, int]:
    """One function or several: begin and end from the beginning of the code, and the UNWIND_INFO."""
    out = write.Writer()
    text = out.section(".text", code, write.CODE)
    rva = out.next
    places, data = [], b""
    for _, _, info in infos:
        places.append(rva + len(data))
        data += info + b"\0" * (-len(info) % 4)
    out.section(".xdata", data + extra)
    out.functions([(text + begin, text + end, at) for (begin, end, _), at in zip(infos, places, strict=True)])
    return Unwinder(pe.in_bytes(out.written())), text


@dataclass
class Prologue:
    """A prologue that a machine can run: for each instruction where it ends, what it does, and its unwind code."""

    pushes: list[str]
    size: int
    frame: tuple[str, int] | None
    saves: list[tuple[str, int]]

    def steps(self) -> list[tuple[str, str, int]]:
        found = [("push", name, 0) for name in self.pushes]
        if self.size:
            found.append(("alloc", "", self.size))
        if self.frame:
            found.append(("frame", *self.frame))
        return [*found, *(("save", name, at) for name, at in self.saves)]

    def codes(self) -> list[bytes]:
        codes = []
        for index, (kind, name, number) in enumerate(self.steps(), 1):
            at = 4 * index
            if kind == "push":
                codes.append(write.push(at, name))
            elif kind == "alloc":
                codes.append(write.alloc(at, number))
            elif kind == "frame":
                codes.append(write.set_frame(at))
            else:
                codes.append(write.save(at, name, number, far=number > 0x7FFF8))
        return codes[::-1]

    def run(self, machine: Machine, count: int) -> None:
        for kind, name, number in self.steps()[:count]:
            if kind == "push":
                machine.push(machine.registers[name])
                machine.registers[name] = 0xDEAD
            elif kind == "alloc":
                machine.registers["rsp"] -= number
            elif kind == "frame":
                machine.registers[name] = machine.registers["rsp"] + number
            else:
                machine.memory[machine.registers["rsp"] + number] = machine.registers[name]
                machine.registers[name] = 0xBEEF


@st.composite
def prologues(draw: st.DrawFn) -> Prologue:
    pushes: list[str] = draw(st.lists(st.sampled_from(KEPT), unique=True, max_size=8))
    size = 8 * draw(st.one_of(st.integers(0, 16), st.integers(0, 0xFFFF), st.integers(0x10000, 0x8000000)))
    frame: tuple[str, int] | None = None
    has_frame: bool = draw(st.booleans())
    if pushes and has_frame:
        frame = draw(st.sampled_from(pushes)), 16 * draw(st.integers(0, min(15, size // 16)))
    places = list(range(0, size, 8)[:64]) + ([size - 8] if size > 0x80000 else [])
    free = [name for name in KEPT if name not in pushes]
    names = draw(st.lists(st.sampled_from(free), unique=True, max_size=min(len(free), len(places)))) if free else []
    chosen = draw(st.permutations(places))[: len(names)]
    return Prologue(pushes, size, frame, list(zip(names, chosen, strict=True)))


@given(prologues(), st.integers(0, 1 << 20))
@settings(max_examples=300, deadline=None)
def test_a_prologue_is_undone_after_each_of_its_instructions(prologue: Prologue, dynamic: int) -> None:
    steps = prologue.steps()
    end = 4 * len(steps)
    info = write.unwind(
        end,
        prologue.codes(),
        frame=prologue.frame[0] if prologue.frame else None,
        frame_offset=prologue.frame[1] if prologue.frame else 0,
    )
    unwinder, text = an_image(b"\x90" * (end + 16), [(0, end + 16, info)])
    for count in range(len(steps) + 1):
        machine = Machine()
        prologue.run(machine, count)
        if count == len(steps) and prologue.frame:
            machine.registers["rsp"] -= 8 * dynamic  # an alloca in the body
        row = unwinder.row(text + 4 * count, exact=True)
        assert row is not None
        found = machine.undo(row)
        assert found["rip"] == RETURN
        assert {name: found[name] for name in (*KEPT, "rsp")} == {name: CALLER[name] for name in (*KEPT, "rsp")}
    function = unwinder._image.function(text)
    assert function is not None
    assert unwinder.frame_size(function) == 8 * len(prologue.pushes) + prologue.size


def test_each_form_of_each_code() -> None:
    info = write.unwind(
        40,
        [
            write.save_xmm(40, 6, 0x40),
            write.save_xmm(38, 15, 0x123450, far=True),
            write.save(36, "r12", 0x88),
            write.save(34, "rsi", 0x123458, far=True),
            write.set_frame(30),
            write.alloc(28, 0x123460, form="huge"),
            write.alloc(20, 0x7FFF8, form="large"),
            write.alloc(10, 128, form="small"),
            write.alloc(9, 8, form="large"),
            write.push(2, "rbp"),
        ],
        frame="rbp",
        frame_offset=240,
    )
    unwinder, text = an_image(b"\x90" * 64, [(0, 64, info)])
    row = unwinder.row(text + 50, exact=True)
    assert row is not None
    total = 0x123460 + 0x7FFF8 + 128 + 8
    # Where rbp points the frame begins 240 bytes below.
    base = REGISTERS.index("rbp")
    saved = {REGISTERS[one.register]: (REGISTERS[one.base], one.distance) for one in row.saved}
    assert saved["r12"] == ("rbp", 0x88 - 240)
    assert saved["rsi"] == ("rbp", 0x123458 - 240)
    assert saved["rbp"] == ("rbp", total - 240)
    assert (row.base, row.returns_at) == (base, total - 240 + 8)


@pytest.mark.parametrize("error_code", [False, True])
@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_machine_frame_leads_to_what_was_interrupted(count: int, *, error_code: bool) -> None:
    codes = [write.alloc(8, 32), write.push(4, "rbx"), write.machine_frame(0, error_code=error_code)]
    unwinder, text = an_image(b"\x90" * 32, [(0, 32, write.unwind(8, codes))])
    machine = Machine()
    for value in (0x2B, TOP + 0x500, 0x246, 0x33, 0x7FF600001000):
        machine.push(value)
    if error_code:
        machine.push(14)
    if count >= 1:
        machine.push(machine.registers["rbx"])
    if count >= 2:
        machine.registers["rsp"] -= 32
    row = unwinder.row(text + 4 * count, exact=True)
    assert row is not None
    assert row.machine
    found = machine.undo(row)
    assert (found["rip"], found["rsp"], found["rbx"]) == (0x7FF600001000, TOP + 0x500, CALLER["rbx"])


def test_a_part_of_a_function_goes_on_with_the_entry_that_it_is_chained_to() -> None:
    first = write.unwind(8, [write.alloc(8, 48), write.push(2, "rbp"), write.push(1, "rdi")])
    second = write.unwind(6, [write.save(6, "rbx", 40)], chained=(0x1000, 0x1020, 0x2000))
    third = write.unwind(0, [], flags=0, chained=(0x1020, 0x1040, 0x2000 + len(first) + -len(first) % 4))
    unwinder, text = an_image(b"\x90" * 0x60, [(0, 0x20, first), (0x20, 0x40, second), (0x40, 0x60, third)])
    assert text == 0x1000
    machine = Machine()
    machine.push(machine.registers["rdi"])
    machine.push(machine.registers["rbp"])
    machine.registers["rsp"] -= 48
    for rva in (text + 0x18, text + 0x20, text + 0x24):  # before rbx is saved it is as it was
        row = unwinder.row(rva, exact=True)
        assert row is not None
        found = machine.undo(row)
        assert (found["rip"], found["rsp"], found["rbx"]) == (RETURN, TOP + 8, CALLER["rbx"])
    machine.memory[machine.registers["rsp"] + 40] = machine.registers["rbx"]
    machine.registers |= {"rbx": 1, "rdi": 2, "rbp": 3}
    for rva in (text + 0x26, text + 0x3F, text + 0x40, text + 0x5F):
        row = unwinder.row(rva, exact=False)
        assert row is not None
        found = machine.undo(row)
        assert {name: found[name] for name in ("rbx", "rdi", "rbp", "rsp")} == {
            name: CALLER[name] for name in ("rbx", "rdi", "rbp", "rsp")
        }
    function = unwinder._image.function(text + 0x44)
    assert function is not None
    assert unwinder.primary(function).begin == text
    assert unwinder.frame_size(function) == 48 + 16


def test_entries_that_are_chained_in_a_circle_end() -> None:
    info = write.unwind(0, [], chained=(0x1000, 0x1010, 0x2000))
    unwinder, text = an_image(b"\x90" * 16, [(0, 16, info)])
    with pytest.raises(InputError):
        unwinder.row(text + 4, exact=True)


EPILOGUES = {
    "return": ("4883c438 5b 5e 415c c3", [4, 1, 1, 2, 1]),
    "far return address": ("4881c438000000 5b 5e 415c c20000", [7, 1, 1, 2, 3]),
    "rep ret": ("4883c438 5b 5e 415c f3c3", [4, 1, 1, 2, 2]),
    "jump to another function": ("4883c438 5b 5e 415c e900100000", [4, 1, 1, 2, 5]),
    "jump to an import": ("4883c438 5b 5e 415c ff2500100000", [4, 1, 1, 2, 6]),
    "jump through a register": ("4883c438 5b 5e 415c 48ffe0", [4, 1, 1, 2, 3]),
    "checked return": ("4883c438 5b 5e 415c f2c3", [4, 1, 1, 2, 2]),
    "checked jump": ("4883c438 5b 5e 415c f2e900100000", [4, 1, 1, 2, 6]),
}


@pytest.mark.parametrize("name", EPILOGUES)
def test_an_epilogue_is_finished_from_each_of_its_instructions(name: str) -> None:
    text_of, sizes = EPILOGUES[name]
    epilogue = bytes.fromhex(text_of)
    codes = [write.alloc(9, 56), write.push(5, "rbx"), write.push(4, "rsi"), write.push(3, "r12")]
    code = b"\x90" * 32 + epilogue
    unwinder, text = an_image(code + b"\xcc" * 8192, [(0, len(code), write.unwind(9, codes))])
    machine = Machine()
    for register in ("r12", "rsi", "rbx"):
        machine.push(machine.registers[register])
        machine.registers[register] = 0
    machine.registers["rsp"] -= 56
    rva = text + 32
    for done, size in enumerate(sizes):
        row = unwinder.row(rva, exact=True)
        assert row is not None
        found = machine.undo(row)
        wanted = {name: CALLER[name] for name in ("rsp", "rbx", "rsi", "r12")}
        assert {name: found[name] for name in wanted} == wanted
        assert found["rip"] == RETURN
        assert row.part == "epilogue"
        if done == 0:
            machine.registers["rsp"] += 56
        elif done < 4:
            machine.registers[("rbx", "rsi", "r12")[done - 1]] = machine.memory[machine.registers["rsp"]]
            machine.registers["rsp"] += 8
        rva += size


@pytest.mark.parametrize(
    ("frame", "text_of"),
    [("rbp", "488d6528"), ("rbp", "488da528000000"), ("r13", "498d6528"), ("r12", "498d642428"), ("rbx", "488d6328")],
)
def test_an_epilogue_that_goes_by_the_frame_register(frame: str, text_of: str) -> None:
    epilogue = (
        bytes.fromhex(text_of)
        + (b"\x41" if frame[1:].isdigit() else b"")
        + bytes((0x58 | REGISTERS.index(frame) & 7, 0xC3))
    )
    codes = [write.set_frame(9), write.alloc(5, 72), write.push(1, frame)]
    code = b"\x90" * 16 + epilogue
    info = write.unwind(9, codes, frame=frame, frame_offset=32)
    unwinder, text = an_image(code, [(0, len(code), info)])
    machine = Machine()
    machine.push(machine.registers[frame])
    machine.registers["rsp"] -= 72
    machine.registers[frame] = machine.registers["rsp"] + 32
    machine.registers["rsp"] -= 4096
    row = unwinder.row(text + 16, exact=True)
    assert row is not None
    assert row.part == "epilogue"
    found = machine.undo(row)
    assert (found["rip"], found["rsp"], found[frame]) == (RETURN, TOP + 8, CALLER[frame])


def test_what_only_looks_like_an_epilogue_is_none() -> None:
    codes = [write.alloc(4, 56)]
    jump_back = bytes.fromhex("ebfc")
    other_register = bytes.fromhex("488d6628c3")  # lea rsp, [rsi + 40], but rsi is no frame register
    store = bytes.fromhex("4883c408 4889c3 c3")
    for body in (jump_back, other_register, store):
        code = b"\x90" * 16 + body + b"\x90" * 8
        unwinder, text = an_image(code, [(0, len(code), write.unwind(4, codes))])
        row = unwinder.row(text + 16, exact=True)
        assert row is not None
        assert (row.part, row.returns_at) == ("body", 56)


def test_a_call_returns_to_no_epilogue() -> None:
    # jmp to the cold part of the function, behind a call: the stack pointer has not been moved yet.
    code = b"\x90" * 16 + bytes.fromhex("e900100000")
    unwinder, text = an_image(code + b"\xcc" * 8192, [(0, len(code), write.unwind(4, [write.alloc(4, 56)]))])
    exact, after_call = unwinder.row(text + 16, exact=True), unwinder.row(text + 16, exact=False)
    assert exact is not None
    assert after_call is not None
    assert (exact.part, exact.returns_at) == ("epilogue", 0)
    assert (after_call.part, after_call.returns_at) == ("body", 56)


def test_a_call_that_never_returns_is_the_last_instruction_of_its_function() -> None:
    first, second = write.unwind(4, [write.alloc(4, 40)]), write.unwind(1, [write.push(1, "rbx")])
    unwinder, text = an_image(b"\x90" * 64, [(0, 32, first), (32, 64, second)])
    row = unwinder.row(text + 32, exact=False)
    assert row is not None
    assert row.returns_at == 40
    row = unwinder.row(text + 32, exact=True)
    assert row is not None
    assert row.returns_at == 0


@pytest.mark.parametrize("padding", [b"", write.code(0, 6, 0), b"\0\0"], ids=["none", "a code", "zeros"])
@pytest.mark.parametrize("at_end", [True, False])
def test_version_2_tells_where_epilogues_are(padding: bytes, *, at_end: bool) -> None:
    # pop rbx; pop r12; pop rsi; ret: 5 bytes; the code itself is not at hand.
    codes = [write.alloc(9, 56), write.push(5, "rbx"), write.push(4, "r12"), write.push(2, "rsi")]
    places = [write.epilogues(5, 20, 300, at_end=True)] if at_end else [write.epilogues(5, 5, 20, 300)]
    info = write.unwind(9, [*places, padding, *codes], version=2)
    unwinder, text = an_image(b"\xcc" * 400, [(0, 400, info)])
    for begin in (400 - 5, 400 - 20, 400 - 300):
        machine = Machine()
        for register in ("rsi", "r12", "rbx"):
            machine.push(machine.registers[register])
            machine.registers[register] = 0
        for offset, popped in ((0, None), (1, "rbx"), (3, "r12"), (4, "rsi")):
            if popped:
                machine.registers[popped] = machine.memory[machine.registers["rsp"]]
                machine.registers["rsp"] += 8
            row = unwinder.row(text + begin + offset, exact=True)
            assert row is not None
            assert row.part == "epilogue"
            found = machine.undo(row)
            wanted = {name: CALLER[name] for name in ("rsp", "rbx", "rsi", "r12")}
            assert {name: found[name] for name in wanted} == wanted
            assert found["rip"] == RETURN
    row = unwinder.row(text + 400 - 6, exact=True)
    assert row is not None
    assert (row.part, row.returns_at) == ("body", 56 + 24)


def test_a_function_without_an_entry_is_a_leaf() -> None:
    unwinder, text = an_image(b"\x90" * 64, [(0, 32, write.unwind(0))])
    assert unwinder.row(text + 40, exact=True) == LEAF
    assert unwinder.row(text + 40, exact=False) is None, "a leaf calls nothing"
    assert unwinder.row(0x2000, exact=True) is None, "no code lies there"


@pytest.mark.parametrize(
    "info",
    [
        write.unwind(0, version=3),
        write.unwind(0, version=0),
        write.unwind(4, [write.code(4, 11, 0)]),
        write.unwind(4, [write.code(4, 1, 2, 0, 0)]),
        bytes((1, 4, 200, 0)) + write.alloc(4, 8),
        bytes((1, 4, 1, 0)) + write.code(4, 1, 1)[:2] + b"\0\0",
        b"\x01",
    ],
    ids=["version 3", "version 0", "unknown code", "unknown form", "cut off", "slots missing", "no header"],
)
def test_damaged_unwind_information(info: bytes) -> None:
    out = write.Writer()
    out.section(".text", b"\x90" * 16, write.CODE)
    rva = out.section(".xdata", info)
    with pytest.raises(InputError):
        unwind_info(pe.in_bytes(out.written()), rva)


@given(st.binary(min_size=4, max_size=600), st.binary(max_size=64))
@settings(max_examples=400, deadline=None)
def test_any_bytes_as_unwind_information(info: bytes, code: bytes) -> None:
    unwinder, text = an_image((code or b"\xc3") + b"\x90" * 64, [(0, 64, info)])
    for rva in (text, text + 5, text + 40, text + 63, text + 64):
        for exact in (True, False):
            try:
                row = unwinder.row(rva, exact=exact)
            except InputError:
                continue
            assert row is None or abs(row.returns_at) < 1 << 41
