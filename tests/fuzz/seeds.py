"""What fuzzing begins with: dumps of every kind that ``writers.minidump`` writes, and the image that they name."""

from __future__ import annotations

import struct
from pathlib import Path

from writers import minidump as w
from writers import pe

BASE, LOW, HIGH, TEB = 0x1_8000_0000, 0x100000, 0x102000, 0x7FF00000
OBJECT = HIGH - 0x200


def image() -> pe.Writer:
    """A DLL of three functions with unwind tables, an export and a version."""
    writer = pe.Writer(base=BASE)
    text = writer.section(".text", b"\x90" * 16 + b"\xe8\0\0\0\0" + b"\xc3" * 0x200, pe.CODE)
    infos = [
        pe.unwind(4, [pe.alloc(4, 0x20)]),
        pe.unwind(8, [pe.alloc(8, 0x1000), pe.push(1, "rbx")]),
        pe.unwind(6, [pe.set_frame(6), pe.push(1, "rbp")], frame="rbp"),
    ]
    at, rows, body = writer.next, [], b""
    for index, info in enumerate(infos):
        rows.append((text + 0x20 * index, text + 0x20 * index + 0x20, at + len(body)))
        body += info + bytes(-len(info) % 4)
    writer.section(".xdata", body)
    writer.functions(rows)
    writer.exports({"_PyRuntime": text + 0x100, "work": text})
    writer.version(3, 11, 9150, 1013)
    return writer


def write_images(folder: Path) -> None:
    """The image under the names that the dumps have for it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("app.exe", "python311.dll"):
        (folder / name).write_bytes(image().written())


def dumps() -> dict[str, bytes]:
    """Name to bytes."""
    size, stamp = image().size_of_image, image().timestamp
    regs = w.context(rip=BASE + 0x1010, rsp=LOW + 0x800, rbp=LOW + 0x900, rcx=0x10)
    stack = bytearray(0x400)
    for at in range(0, 0x400, 0x28):
        struct.pack_into("<Q", stack, at, BASE + 0x1015)
    check = b"F0000 00:00:1700000000.123456 4711 a.cc:7] Check failed: a == b (3 vs. 7)\0"
    stack[0x40 : 0x40 + len(check)] = check
    block = bytearray(0x1500)
    struct.pack_into("<QQ", block, 8, HIGH, LOW)
    struct.pack_into("<Q", block, 0x60, TEB)
    struct.pack_into("<Q", block, 0x1478, LOW)
    modules = [
        w.Module("C:\\app\\app.exe", BASE, size, stamp, (1, 2, 3, 4), w.rsds(bytes(16), 1, "app.pdb")),
        w.Module("C:\\app\\python311.dll", BASE + 0x100000, size, stamp, (3, 11, 9150, 1013)),
    ]
    memory = [(TEB, bytes(block)), (HIGH - 0x200, bytes(0x200))]
    common = [
        (w.SYSTEM, w.system(service_pack="x")),
        (w.MISC, w.misc(pid=4711, created=1)),
        (w.THREADS, w.threads([w.Thread(10, regs, TEB, LOW + 0x800, bytes(stack)), w.Thread(11, regs)])),
        (w.MODULES, w.modules(modules)),
        (w.MEMORY, w.memory(memory)),
        (w.THREAD_NAMES, w.thread_names([(10, "MainThread")])),
    ]
    regions = w.memory_info([(LOW, LOW, HIGH - LOW, 0x1000, 4, 0x20000), (BASE, BASE, size, 0x1000, 0x20, 0x1000000)])
    thrown = (0x19930520, OBJECT, BASE + 0x1100, BASE)
    codes: dict[str, tuple[int, tuple[int, ...]]] = {
        "violation": (0xC0000005, (1, 0x10)),
        "overflow": (0xC00000FD, (1, LOW + 0x800)),
        "fast-fail": (0xC0000409, (7,)),
        "cpp": (0xE06D7363, thrown),
        "gnu": (0x20474343, (OBJECT,)),
        "delayed": (0xC06D007F, (OBJECT,)),
        "heap": (0xC0000374, (OBJECT,)),
    }
    found = {
        name: w.minidump(
            [*common, (w.EXCEPTION, w.exception(10, code, BASE + 0x1010, parameters, regs)), (w.MEMORY_INFO, regions)]
        )
        for name, (code, parameters) in codes.items()
    }
    found["full"] = w.minidump(
        [
            *common[:4],
            (w.MEMORY64, w.memory64([*memory, (LOW + 0x800, bytes(stack))])),
            (w.EXCEPTION, w.exception(10, 0xC0000005, BASE + 0x1010, (0, 0), regs)),
            (w.UNLOADED, w.unloaded([(0x5000000, 0x3000, 7, "gone.dll")])),
            (w.HANDLES, w.handles([(4, "File", "x")])),
            (w.THREAD_INFO, w.thread_info([(10, 0, 200, 5)])),
            (w.COMMENT_A, w.raw(b"*** Unhandled exception: C0000005.ACCESS\0")),
        ]
    )
    found["linux"] = w.minidump(
        [
            (w.SYSTEM, w.system(platform=0x8201)),
            (w.EXCEPTION, w.exception(10, 11, 0x10, flags=1, regs=regs)),
            (w.THREADS, w.threads([w.Thread(10, regs)], padded=True)),
            (0x47670004, w.raw(b"Pid:\t77\n")),
            (0x47670007, w.raw(b"OMP_NUM_THREADS=4\0")),
            (0x47670002, w.raw(bytes(776))),
        ]
    )
    small = w.context_x86(eip=0x401006, esp=0x19FF00, ebp=0x19FF10, ecx=0)
    words = struct.pack("<12I", 0, 0, 0, 0, 0x19FF20, 0x401105, 0, 0x401105, 0, 0, 0, 0)
    code = bytes.fromhex("55 89e5 83ec10 8b01 7402 ebfe c9 c20800 e8f0feffff 53 5b c3")
    own = bytearray(0x1000)
    struct.pack_into("<II", own, 4, 0x1A0000, 0x190000)
    struct.pack_into("<I", own, 0x18, TEB)
    loaded = [w.Module("C:\\app\\app.exe", 0x400000, size, stamp), w.Module("C:\\w\\ntdll.dll", 0x77000000, 0x9000)]
    found["x86"] = w.minidump(
        [
            (w.SYSTEM, w.system(architecture=w.X86)),
            (w.THREADS, w.threads([w.Thread(1, small, TEB, 0x19FF00, words)])),
            (w.MODULES, w.modules(loaded)),
            (w.MEMORY, w.memory([(0x401000, code), (0x401100, code), (TEB, bytes(own))])),
            (w.EXCEPTION, w.exception(1, 0xC0000005, 0x401006, (0, 0), small)),
        ]
    )
    arm = w.context_arm64(pc=0x401000, sp=0x19FF00, fp=0x19FF10, lr=0x401105)
    pairs = struct.pack("<8Q", 0, 0, 0x19FF20, 0x401104, 0, 0, 0, 0)
    words_of_code = (0xF9400008, 0xB4000060, 0x97FFFFF0, 0xA8C17BFD, 0xD65F03C0, 0xD63F0100)
    code = struct.pack("<6I", *words_of_code)
    found["arm64"] = w.minidump(
        [
            (w.SYSTEM, w.system(architecture=w.ARM64, platform=0x8203)),
            (w.THREADS, w.threads([w.Thread(1, arm, 0, 0x19FF00, pairs)])),
            (w.MODULES, w.modules([w.Module("/system/lib64/libapp.so", 0x400000, 0x9000)])),
            (w.MEMORY, w.memory([(0x401000, code), (0x4010F0, code)])),
            (w.EXCEPTION, w.exception(1, 11, 0x401000, (), arm)),
            (0x47670009, w.raw(b"400000-409000 r-xp 00000000 08:01 1 /system/lib64/libapp.so\n")),
        ]
    )
    return found


def write_seeds(folder: Path) -> None:
    """Each dump as a file."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in dumps().items():
        (folder / name).write_bytes(data)
