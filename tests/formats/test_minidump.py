from __future__ import annotations

import mmap
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from necropsy.errors import InputError
from necropsy.formats import arm64_code, x64_context
from necropsy.formats.minidump import parse
from necropsy.formats.minidump_records import COMMITTED, CodeView
from writers import minidump as w

GUID = bytes.fromhex("33221100554477668899aabbccddeeff")


def a_dump(*, flags: int = 0, written: int = 0) -> bytes:
    regs = w.context(rip=0x7FF6_0000_1234, rsp=0x14_FE00, rax=7, r15=15)
    streams = [
        (w.SYSTEM, w.system(service_pack="SP1")),
        (w.MISC, w.misc(pid=4711, created=0x65000000, size=832, build="19041.1.amd64fre")),
        (w.THREADS, w.threads([w.Thread(10, regs, 0x2000, 0x14_FE00, b"stack!!!"), w.Thread(11, w.context(rip=1))])),
        (w.THREAD_NAMES, w.thread_names([(11, "loader"), (10, "MainThread")])),
        (w.THREAD_INFO, w.thread_info([(10, 0, 200, 0x7FF6_0000_1000), (11, 4, 100, 0)])),
        (
            w.MODULES,
            w.modules(
                [
                    w.Module(
                        "C:\\app\\python.exe",
                        0x7FF6_0000_0000,
                        0x19000,
                        0x60AB0012,
                        (3, 11, 9150, 1013),
                        w.rsds(GUID, 2, "D:\\b\\python.pdb"),
                    ),
                    w.Module("C:\\app\\old.dll", 0x1_8000_0000, 0x1000, codeview=w.nb10(0x3A2B1C0D, 1, "old.pdb")),
                ]
            ),
        ),
        (w.UNLOADED, w.unloaded([(0x5_0000_0000, 0x3000, 77, "gone.dll")])),
        (w.EXCEPTION, w.exception(10, 0xC0000005, 0x7FF6_0000_1234, (1, 0x10), regs)),
        (w.MEMORY, w.memory([(0x9000, b"hello"), (0x9005, b" world")])),
        (
            w.MEMORY_INFO,
            w.memory_info([(0x9000, 0x9000, 0x1000, COMMITTED, 4, 0x20000), (0, 0, 0x9000, 0x10000, 1, 0)]),
        ),
        (w.HANDLES, w.handles([(4, "File", ""), (8, "Event", "\\BaseNamedObjects\\x")], second=True)),
        (w.COMMENT_A, w.raw(b"*** procdump\0")),
        (w.COMMENT_W, w.raw("*** f\u00fcr\0".encode("utf-16-le"))),
        (0xFFF0, w.raw(b"unknown")),
    ]
    return w.minidump(streams, flags=flags, written=written)


def test_everything_that_was_written_is_read() -> None:
    dump = parse(a_dump(flags=0x1826, written=1_700_000_000))
    assert dump.gaps == ()
    assert (dump.flags, dump.written) == (0x1826, 1_700_000_000)
    assert dump.system is not None and dump.misc is not None and dump.exception is not None
    assert (dump.system.architecture, dump.system.platform, dump.system.version) == ("x64", "Windows", (10, 0, 19045))
    assert (dump.system.service_pack, dump.system.processors) == ("SP1", 8)
    assert (dump.misc.pid, dump.misc.created, dump.misc.user_s, dump.misc.build) == (
        4711,
        0x65000000,
        3,
        "19041.1.amd64fre",
    )
    record = dump.exception
    assert (record.code, record.address, record.parameters, record.tid) == (0xC0000005, 0x7FF6_0000_1234, (1, 0x10), 10)
    assert x64_context.registers(record.context) == {
        name: {"rip": 0x7FF6_0000_1234, "rsp": 0x14_FE00, "rax": 7, "r15": 15, "eflags": 0x246}.get(name, 0)
        for name in (
            "rax",
            "rcx",
            "rdx",
            "rbx",
            "rsp",
            "rbp",
            "rsi",
            "rdi",
            *(f"r{n}" for n in range(8, 16)),
            "rip",
            "eflags",
        )
    }
    first, second = dump.threads
    assert (first.tid, first.teb, first.name, first.start, first.exited) == (
        10,
        0x2000,
        "MainThread",
        0x7FF6_0000_1000,
        False,
    )
    assert (second.tid, second.name, second.start, second.exited, second.created) == (11, "loader", None, True, 100)
    python, old = dump.modules
    assert (python.path, python.name, python.base, python.size) == (
        "C:\\app\\python.exe",
        "python.exe",
        0x7FF6_0000_0000,
        0x19000,
    )
    assert (python.timestamp, python.version) == (0x60AB0012, "3.11.9150.1013")
    assert python.codeview == CodeView("RSDS", "00112233445566778899AABBCCDDEEFF", 2, "D:\\b\\python.pdb")
    assert old.version is None
    assert old.codeview == CodeView("NB10", "3A2B1C0D", 1, "old.pdb")
    (gone,) = dump.unloaded
    assert (gone.path, gone.base, gone.size, gone.timestamp) == ("gone.dll", 0x5_0000_0000, 0x3000, 77)
    assert dump.memory_infos is not None and len(dump.memory_infos) == 2
    info = dump.memory_infos.at(0x9FFF)
    assert info is not None and (info.base, info.state, info.protect, info.type) == (0x9000, COMMITTED, 4, 0x20000)
    assert dump.memory_infos.at(0xA000) is None
    assert dump.handles is not None
    assert [(one.handle, one.type, one.name) for one in dump.handles] == [
        (4, "File", None),
        (8, "Event", "\\BaseNamedObjects\\x"),
    ]
    assert dump.comments == ("*** procdump", "*** f\u00fcr")


def test_memory_is_read_across_neighbours_and_no_further() -> None:
    memory = parse(a_dump()).memory
    assert memory.some(0x9000, 100) == b"hello world"
    assert memory.some(0x9003, 4) == b"lo w"
    assert memory.some(0x14_FE00, 8) == b"stack!!!"
    assert memory.some(0x8FFF, 4) == b""
    assert memory.some(0x9000, 0) == b""
    assert memory.some(-5, 8) == b""
    assert memory.some(1 << 70, 8) == b""


def test_the_file_may_be_mapped(tmp_path: Path) -> None:
    path = tmp_path / "x.dmp"
    path.write_bytes(a_dump())
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        dump = parse(data)
        assert dump.memory.some(0x9000, 11) == b"hello world"
        assert dump.modules[0].name == "python.exe"


def test_of_overlapping_memory_the_first_begun_counts() -> None:
    blob = w.memory([(0x1000, b"aaaa"), (0x1002, b"bbbb"), (0x1001, b"cc"), (0x1010, b"dd")])
    dump = parse(w.minidump([(w.MEMORY, blob)]))
    assert dump.memory.some(0x1000, 64) == b"aaaabb"
    assert [(one.address, one.size) for one in dump.memory] == [(0x1000, 4), (0x1004, 2), (0x1010, 2)]


def test_memory_of_a_full_dump_lies_one_behind_the_other() -> None:
    ranges = [(0x5000, b"five"), (0x7FFF_0000_0000, b"high"), (0x1000, b"one")]
    dump = parse(w.minidump([(w.MEMORY64, w.memory64(ranges))], flags=2))
    for address, content in ranges:
        assert dump.memory.some(address, 10) == content


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1 << 20), st.binary(min_size=1, max_size=40)), max_size=20))
def test_any_ranges_give_back_what_was_written(ranges: list[tuple[int, bytes]]) -> None:
    """Where ranges overlap, the one that begins first and was longest counts, wherever it stood."""
    memory = parse(w.minidump([(w.SYSTEM, w.system()), (w.MEMORY, w.memory(ranges))])).memory
    expected: dict[int, set[int]] = {}
    for address, content in ranges:
        for index, byte in enumerate(content):
            expected.setdefault(address + index, set()).add(byte)
    held = {address: memory.some(address, 1) for address in expected}
    assert all(len(data) == 1 and data[0] in expected[address] for address, data in held.items())
    assert sum(one.size for one in memory) == len(expected)


@pytest.mark.parametrize("padded", [False, True])
def test_lists_may_be_padded_as_breakpad_does(padded: bool) -> None:
    streams = [
        (w.MODULES, w.modules([w.Module("a.dll", 0x1000, 0x1000), w.Module("b.dll", 0x3000, 0x1000)], padded=padded)),
        (w.THREADS, w.threads([w.Thread(1), w.Thread(2)], padded=padded)),
        (w.MEMORY, w.memory([(0x1000, b"xx"), (0x3000, b"yy")], padded=padded)),
    ]
    dump = parse(w.minidump(streams))
    assert [one.path for one in dump.modules] == ["a.dll", "b.dll"]
    assert [one.tid for one in dump.threads] == [1, 2]
    assert dump.memory.some(0x3000, 9) == b"yy"
    assert dump.gaps == ()


def test_streams_may_come_twice_and_in_any_order() -> None:
    streams = [
        (w.MODULES, w.modules([])),
        (w.EXCEPTION, w.exception(1, 0xC0000409, 5, (7,))),
        (w.MEMORY, w.memory([(0x1000, b"xx")])),
        (w.MODULES, w.modules([w.Module("a.dll", 0x1000, 0x1000)])),
        (w.MEMORY, w.memory([(0x2000, b"yy")])),
        (w.EXCEPTION, w.exception(2, 1, 2)),
        (w.THREADS_EX, w.threads([w.Thread(9)], extended=True)),
    ]
    dump = parse(w.minidump(streams))
    assert [one.path for one in dump.modules] == ["a.dll"]
    assert dump.memory.some(0x1000, 2) + dump.memory.some(0x2000, 2) == b"xxyy"
    assert dump.exception is not None and dump.exception.parameters == (7,)
    assert [one.tid for one in dump.threads] == [9]


def test_what_is_absent_is_none() -> None:
    dump = parse(w.minidump([(w.SYSTEM, w.system())]))
    assert (dump.exception, dump.misc, dump.memory_infos, dump.handles, dump.assertion, dump.unix) == (None,) * 6
    assert (dump.threads, dump.modules, dump.unloaded, dump.comments, len(dump.memory)) == ((), (), (), (), 0)
    assert parse(w.minidump([(w.MISC, w.misc())])).misc is not None


def test_flags_of_the_misc_info_decide() -> None:
    misc = parse(w.minidump([(w.MISC, w.misc(created=5, size=44))])).misc
    assert misc is not None and (misc.pid, misc.created, misc.build) == (None, 5, None)


def test_32_bit_x86() -> None:
    regs = w.context_x86(eip=0x401000, esp=0x19FF00, eax=1)
    streams = [
        (w.SYSTEM, w.system(architecture=w.X86, vendor=b"GenuineIntel" + bytes(12))),
        (w.EXCEPTION, w.exception(1, 0xC0000005, 0x401000, (0, 0), regs)),
    ]
    dump = parse(w.minidump(streams))
    assert dump.system is not None and (dump.system.architecture, dump.system.cpu) == ("x86", "GenuineIntel")
    assert dump.exception is not None
    values = x64_context.registers_of_x86(dump.exception.context)
    assert values is not None and (values["eip"], values["esp"], values["eax"]) == (0x401000, 0x19FF00, 1)


@pytest.mark.parametrize(("architecture", "old"), [(w.ARM64, False), (w.ARM64_OLD, True)])
def test_arm64(architecture: int, old: bool) -> None:
    regs = w.context_arm64(old=old, pc=0x1234, sp=0x8000, cpsr=0x6000_0000, x0=1, x28=28, fp=29, lr=30)
    dump = parse(
        w.minidump([(w.SYSTEM, w.system(architecture=architecture)), (w.THREADS, w.threads([w.Thread(1, regs)]))])
    )
    assert dump.system is not None and dump.system.architecture == "ARM64"
    values = arm64_code.context_registers(dump.threads[0].context)
    assert values is not None
    shown = {name: values[name] for name in ("x0", "x28", "fp", "lr", "sp", "pc", "cpsr")}
    assert shown == {"x0": 1, "x28": 28, "fp": 29, "lr": 30, "sp": 0x8000, "pc": 0x1234, "cpsr": 0x6000_0000}


def test_registers_of_a_context_that_is_cut_off_are_none() -> None:
    whole = w.context(rip=5)
    assert x64_context.registers(whole[:0x100]) is not None
    assert x64_context.registers(whole[:0xFF]) is None
    assert x64_context.registers_of_x86(w.context_x86()[:0xC7]) is None
    assert arm64_code.context_registers(w.context_arm64()[:100]) is None


def test_vector_registers() -> None:
    data = bytearray(w.context())
    data[0x1A0 : 0x1A0 + 32] = bytes(range(32))
    found = x64_context.vectors(bytes(data))
    assert found["xmm1"] == int.from_bytes(bytes(range(16, 32)), "little")
    assert len(found) == 16
    assert x64_context.vectors(bytes(data[:0x29F])) == {}


def test_breakpad_on_linux() -> None:
    streams = [
        (w.SYSTEM, w.system(platform=0x8201, version=(6, 1, 0), service_pack="Linux 6.1.0 x86_64")),
        (w.EXCEPTION, w.exception(77, 11, 0x10, flags=1)),
        (w.MODULES, w.modules([w.Module("/usr/lib/libx.so", 0x1000, 0x1000, codeview=w.build_id(bytes(range(20))))])),
        (0x47670003, w.raw(b"processor : 0\nmodel name\t: AMD EPYC\n")),
        (0x47670004, w.raw(b"Name:\tx\nPid:\t77\n")),
        (0x47670005, w.raw(b'DISTRIB_DESCRIPTION="Debian 12"\n')),
        (0x47670006, w.raw(b"python\0train.py\0")),
        (0x47670007, w.raw(b"A=1\0OMP_NUM_THREADS=4\0")),
        (0x47670001, w.raw(struct.pack("<III", 3, 5, 77))),
    ]
    dump = parse(w.minidump(streams))
    assert dump.system is not None and dump.system.platform == "Linux" and not dump.system.is_windows
    assert dump.modules[0].codeview == CodeView("ELF", bytes(range(20)).hex(), 0, None)
    assert dump.modules[0].name == "libx.so"
    assert dump.unix is not None
    assert dump.unix.command == ("python", "train.py")
    assert dump.unix.variables == {"A": "1", "OMP_NUM_THREADS": "4"}
    assert (dump.unix.cpu, dump.unix.release, dump.requesting_tid) == ("AMD EPYC", "Debian 12", 77)


def test_breakpads_assertion() -> None:
    texts = [text.encode("utf-16-le").ljust(256, b"\0") for text in ("p != 0", "f", "x.cc")]
    dump = parse(w.minidump([(0x47670002, w.raw(b"".join(texts) + struct.pack("<II", 7, 1)))]))
    found = dump.assertion
    assert found is not None
    assert (found.kind, found.expression, found.function, found.file, found.line) == (1, "p != 0", "f", "x.cc", 7)


def test_crashpads_annotations() -> None:
    """Behind the fixed part lie a dictionary of the program, and one list for each module."""
    head = 52
    body = bytearray()

    def put(data: bytes) -> int:
        body.extend(bytes(-len(body) % 4))
        at = START + len(body)
        body.extend(data)
        return at

    START = 32 + 12 + 4 + head  # noqa: N806 - header, directory, padding, the fixed part
    key, value, said = put(w.utf8("channel")), put(w.utf8("beta")), put(w.utf8("abort() called"))
    name, text = put(w.utf8("last error")), put(struct.pack("<I", 5) + b"wrong")
    simple = put(struct.pack("<III", 1, key, value))
    words = put(struct.pack("<II", 1, said))
    objects = put(struct.pack("<IIHHI", 1, name, 1, 0, text))
    module = put(struct.pack("<IIIIIII", 1, 8, words, 0, 0, 16, objects))
    links = put(struct.pack("<IIII", 1, 0, 28, module))
    fixed = struct.pack("<I32sIIII", 1, bytes(32), 12, simple, 16, links)
    dump = parse(w.minidump([(0x43500001, w.raw(fixed + bytes(head - len(fixed)) + bytes(body)))]))
    assert dump.annotations == {"channel": "beta", "message": "abort() called", "last error": "wrong"}


def test_a_string_ends_at_its_own_end() -> None:
    """A length that is too large would run on into what follows."""
    blob = w.modules([w.Module("a.dll", 0x1000, 0x1000)])
    data = bytearray(w.minidump([(w.MODULES, blob)]))
    at = data.index("a.dll".encode("utf-16-le")) - 4
    struct.pack_into("<I", data, at, 4000)
    assert parse(bytes(data) + b"x" * 5000).modules[0].path == "a.dll"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not a minidump"),
        (b"PMDM" + bytes(100), "not a minidump"),
        (b"MDMP", "ends in its header"),
        (b"MDMP" + bytes(28), "without anything"),
        (w.minidump([(w.SYSTEM, w.system())])[:40], "cut off"),
    ],
)
def test_what_is_no_minidump_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse(data)
