"""Stacks of Windows: of real programs at each instruction and where they die, and of modules that are made up here."""

from __future__ import annotations

import random
import struct
import time
from glob import glob
from pathlib import Path

import pytest
from made import BASE, LOW, Function, Made, walk, words
from stepping import Window, module_of, steps

import wine
from necropsy.capture import open_minidump
from necropsy.capture.process.thread_report import folded
from necropsy.capture.windows.modules import ModuleImages
from necropsy.capture.windows.symbolizer import Symbolizer
from necropsy.capture.windows.unwinder import StackWalker, WalkedStack
from necropsy.formats.minidump_records import MemoryInfo
from necropsy.model import Address, Crash, Stack, Thread

HERE = Path(__file__).parent
WINES_OWN = [
    Path(one) for one in glob("/usr/lib/x86_64-linux-gnu/wine/x86_64-windows") + glob("/usr/lib/wine/*-windows")
]
"""Where wine has the DLLs that every program loads."""


def returned_to(walked: WalkedStack) -> list[int]:
    """The program counters of all frames but the first, without inlined calls."""
    return [place.pc for place in walked.places if not place.inline][1:]


@wine.needed
@pytest.mark.parametrize("flags", ["-O0", "-O2", "-O3 -fno-omit-frame-pointer -fstack-protector-all"])
def test_callers_are_right_at_each_instruction(flags: str, tmp_path: Path) -> None:
    exe = wine.mingw(HERE / "frames.cc", *flags.split())
    window = Window()
    images = ModuleImages([module_of(exe)], window, [exe.parent])
    walker = StackWalker(images, Symbolizer(images))
    count, guessed = 0, set()
    for step in steps(exe, tmp_path):
        window.low, window.data = step.registers["rsp"], step.stack
        high = window.low + len(window.data)
        walked = walker.walk(step.registers, Stack(high=Address(high)), time.monotonic() + 10)
        wanted = list(step.returns)
        assert returned_to(walked)[: len(wanted)] == wanted, hex(step.registers["rip"])
        if any(walked.frame(at).found_by == "scan" for at in range(1, 1 + len(wanted))):
            guessed.add(walked.places[0].function)
        count += 1
    images.close()
    assert count > 1500
    assert guessed <= {"___chkstk_ms"}, "all others have tables"


# -- where programs die -----------------------------------------------------------------------------------------------

CRT = ["main", "__tmainCRTStartup", "mainCRTStartup", "BaseThreadInitThunk", "RtlUserThreadStart"]


def dead(way: str, *flags: str) -> tuple[Crash, Thread]:
    """The crash of a real program, from a dump and the images that were loaded."""
    exe = wine.mingw(HERE / "dies.cc", *flags)
    crash = open_minidump.read(wine.dump(exe, way), images=[exe.parent, *WINES_OWN])
    thread = crash.crashed_thread
    assert thread is not None
    assert thread.frames is not None
    return crash, thread


def functions(thread: Thread) -> list[str | None]:
    return [frame.function for frame in thread.frames or ()]


@wine.needed
@pytest.mark.parametrize("flags", [["-O0"], ["-O2"]])
def test_a_stack_is_complete_and_by_tables(flags: list[str]) -> None:
    _, thread = dead("null", *flags)
    assert functions(thread) == ["read_null", "level_2", "level_1", *CRT]
    assert thread.complete
    assert [frame.found_by for frame in thread.frames or ()] == ["registers", *["cfi"] * 7]
    lines = [frame.line for frame in (thread.frames or ())[:3]]
    source = (HERE / "dies.cc").read_text().splitlines()
    assert [
        source[line - 1].count(name)
        for line, name in zip(lines, ("*nowhere", "read_null(a)", "level_2(a"), strict=True)
        if line
    ] == [1, 1, 1]


@wine.needed
def test_without_any_symbols_exports_and_tables_lead_to_the_bottom() -> None:
    _, thread = dead("null", "-O2", "-s")
    assert functions(thread) == [None] * 6 + CRT[-2:]
    assert thread.complete
    assert {frame.found_by for frame in (thread.frames or ())[1:]} == {"cfi"}


@wine.needed
def test_a_recursion_is_folded_with_its_bytes() -> None:
    _, thread = dead("deep", "-O1")
    assert thread.complete
    assert thread.frames_total is not None
    assert thread.frames_total > 10_000
    assert len(thread.frames or ()) == 512
    (fold, *_) = thread.folds
    assert (fold.functions, fold.period) == (("deep",), 1)
    assert fold.bytes_per_period is not None
    assert fold.bytes_per_period % 16 == 0, "frames are multiples of 16 bytes"
    _, thread = dead("ping", "-O1")
    assert set(thread.folds[0].functions) == {"ping", "pong"}
    assert thread.complete


@wine.needed
@pytest.mark.parametrize(("way", "size"), [("large", 40_000_000), ("variable", 50_000_000)])
def test_a_frame_that_did_not_fit_has_the_size_that_it_wanted(way: str, size: int) -> None:
    _, thread = dead(way, "-O1")
    assert functions(thread) == ["___chkstk_ms", way, *CRT]
    assert thread.complete
    (largest, *_) = thread.largest
    assert largest.function == way
    assert largest.stack_bytes is not None
    assert size <= largest.stack_bytes < size + 256


@wine.needed
def test_a_call_to_where_no_code_is_has_its_caller() -> None:
    _, thread = dead("called", "-O1")
    assert functions(thread) == [None, "called", *CRT]
    first, second = (thread.frames or ())[:2]
    assert (first.module, first.address) == (None, Address(0x1230))
    assert second.found_by == "scan"
    assert thread.complete


@wine.needed
def test_through_a_handler_to_what_it_interrupted() -> None:
    _, thread = dead("handled", "-O1")
    names = functions(thread)
    assert names[0] == "handler(_EXCEPTION_POINTERS*)"
    at = names.index("KiUserExceptionDispatcher")
    assert names[at + 1 :] == ["read_null", "level_2", "level_1", *CRT]
    assert {frame.found_by for frame in (thread.frames or ())[1:]} == {"cfi"}


@wine.needed
def test_all_threads_lead_to_where_threads_begin() -> None:
    crash, thread = dead("thread", "-O1")
    assert functions(thread) == ["read_null", "level_2", "level_1", "in_thread(void*)", *CRT[-2:]]
    others = [one for one in crash.threads or () if not one.crashed]
    assert len(others) == 2
    for one in others:
        assert one.complete
        assert functions(one)[-1] == "RtlUserThreadStart"


# -- made up ----------------------------------------------------------------------------------------------------------


def test_300000_frames_are_folded(tmp_path: Path) -> None:
    made = Made({"ping": Function(40), "pong": Function(24, pushed=["rbx"]), "start": Function(40)})
    ping, pong, start = (made.after_call(name) for name in ("ping", "pong", "start"))
    turn = bytes(40) + words(pong) + bytes(24) + words(7, ping)
    stack = turn * 150_000 + bytes(40) + words(start) + bytes(40) + words(0)
    walked = walk(made, stack, {"rip": ping}, tmp_path)
    assert len(walked) == 300_002
    fold = folded(walked)[0].fold
    assert (fold.period, fold.times, fold.bytes_per_period) == (2, 150_000, 88)
    assert set(fold.functions) == {"ping", "pong"}
    kept = walked.kept()
    assert len(kept) == 512
    assert kept[-1].function == "start"
    assert not walked.complete, "nothing says that a thread begins there"


def test_a_frame_register_is_followed_through_frames_that_do_not_use_it(tmp_path: Path) -> None:
    made = Made({"leaf": Function(40), "framed": Function(64, pushed=["rbp"], frame="rbp"), "outer": Function(24)})
    # framed has moved its stack pointer by an alloca of 512 bytes: only rbp tells where its frame is.
    frame = LOW + 48 + 512
    stack = bytes(40) + words(made.after_call("framed")) + bytes(512 + 64)
    stack += words(0xB0B, made.after_call("outer")) + bytes(24) + words(made.after_call("outer")) + bytes(64)
    walked = walk(made, stack, {"rip": made.after_call("leaf"), "rbp": frame}, tmp_path)
    assert [place.function for place in walked.places.first(4)] == ["leaf", "framed", "outer", "outer"]
    assert [walked.frame(at).found_by for at in range(4)] == ["registers", "cfi", "cfi", "cfi"]
    assert walked.stack_bytes(1) == 512 + 64 + 16


def test_code_without_tables_is_passed_by_frame_pointer_or_by_a_search(tmp_path: Path) -> None:
    made = Made({"nothing": Function(has_entry=False), "known": Function(40)})
    known = made.after_call("known")
    frames = words(1, 2, LOW + 64, made.at("known", 3), 3, 4, 5, 6) + words(0, known) + bytes(40) + words(0)
    walked = walk(made, frames, {"rip": made.after_call("nothing"), "rbp": LOW + 64}, tmp_path)
    assert [walked.frame(at).found_by for at in range(2)] == ["registers", "frame-pointer"]
    assert walked.places[1].pc == known
    walked = walk(made, frames, {"rip": made.after_call("nothing")}, tmp_path)
    assert [walked.frame(at).found_by for at in range(2)] == ["registers", "scan"]
    assert walked.places[1].pc == known, "what follows no call is no return address"


def test_a_small_helper_without_tables_is_read_to_its_return(tmp_path: Path) -> None:
    helper = Function(has_entry=False, code=bytes.fromhex("51 50 90 48830900 90 58 59 c3"))  # push, or [rcx], pop, ret
    made = Made({"helper": helper, "known": Function(40), "other": Function(40)})
    stale = made.after_call("other")
    stack = words(stale, stale, made.after_call("known")) + bytes(40) + words(0)
    walked = walk(made, stack, {"rip": made.at("helper", 3)}, tmp_path)
    assert walked.places[1].function == "known", "what it has pushed only looks like a return address"


def test_without_the_image_the_next_address_in_a_module_is_taken_and_told_as_a_guess() -> None:
    made = Made({"one": Function(40)})
    stack = words(1, 2, made.after_call("one")) + bytes(64)
    walked = walk(made, stack, {"rip": made.at("one")}, None)
    assert [walked.frame(at).found_by for at in range(len(walked))] == ["registers", "scan"]
    assert [place.function for place in walked.places] == [None, None]
    assert not walked.complete


class Regions:
    """All of the image is data, but for one page."""

    def at(self, address: int) -> MemoryInfo | None:
        protect = 0x20 if BASE + 0x1000 <= address < BASE + 0x2000 else 0x02
        return MemoryInfo(address & ~0xFFF, BASE, 0x80, 0x1000, 0x1000, protect, 0x1000000)


def test_without_the_image_regions_tell_code_from_data() -> None:
    made = Made({"one": Function(40)})
    stack = words(BASE + 0x2010, BASE + 0x3000, made.after_call("one")) + bytes(64)
    walked = walk(made, stack, {"rip": made.at("one")}, None, regions=Regions())
    assert [place.pc for place in walked.places] == [made.at("one"), made.after_call("one")]


def test_another_build_is_not_used(tmp_path: Path) -> None:
    made = Made({"one": Function(40)})
    other = Made({"one": Function(80)})
    other.image.timestamp += 1
    (tmp_path / "made.dll").write_bytes(other.image.written())
    stack = words(*[0] * 5, made.after_call("one")) + bytes(40) + words(made.after_call("one")) + bytes(80)
    walked = walk(made, stack, {"rip": made.after_call("one")}, None)
    assert "cfi" not in {walked.frame(at).found_by for at in range(len(walked))}


@pytest.mark.parametrize("size", [0, -40])
def test_frames_that_take_nothing_end_the_walk(size: int, tmp_path: Path) -> None:
    made = Made({"loop": Function(40, frame="rbp")})
    stack = words(LOW) * 4096
    walked = walk(made, stack, {"rip": made.after_call("loop"), "rbp": LOW + size}, tmp_path, seconds=5)
    assert not walked.complete
    assert len(walked) < 1000


def test_a_stack_that_is_overwritten_ends_soon_and_is_not_complete(tmp_path: Path) -> None:
    made = Made({"one": Function(40), "two": Function(40)})
    for filler in (0x4141414141414141, 0, (1 << 64) - 1, LOW, BASE):
        stack = words(*[filler] * 4096)
        walked = walk(made, stack, {"rip": made.after_call("one")}, tmp_path, seconds=5)
        assert not walked.complete
        assert len(walked) == 1


def test_any_stack_of_addresses_ends(tmp_path: Path) -> None:
    made = Made(
        {"one": Function(40), "two": Function(8, pushed=["rbp"], frame="rbp"), "none": Function(has_entry=False)}
    )
    random_ = random.Random(7)
    known = [made.after_call(name) for name in ("one", "two", "none")] + [LOW, LOW + 512, LOW + 4096, 0, BASE, 1 << 63]
    for _ in range(50):
        stack = words(*(random_.choice(known) + random_.choice((0, 0, 0, 8)) for _ in range(1024)))
        walked = walk(made, stack, {"rip": random_.choice(known), "rbp": random_.choice(known)}, tmp_path, seconds=5)
        assert len(walked) >= 1
        assert list(walked.pointers) == sorted(walked.pointers) or not walked.complete


def test_time_that_is_used_up_is_told(tmp_path: Path) -> None:
    made = Made({"one": Function(40)})
    stack = (bytes(40) + words(made.after_call("one"))) * 50_000
    walked = walk(made, stack, {"rip": made.after_call("one")}, tmp_path, seconds=-1)
    assert walked.why == "the time for reading it was used up"
    assert len(walked) < 50_000


def test_the_stack_of_a_dump_that_was_cut_off(tmp_path: Path) -> None:
    made = Made({"one": Function(40)})
    stack = bytes(40) + words(made.after_call("one")) + bytes(20)
    walked = walk(made, stack, {"rip": made.after_call("one")}, tmp_path)
    assert [place.function for place in walked.places] == ["one", "one"]
    assert not walked.complete
    assert walked.why is not None


def test_exceptions_of_windows_lead_on_with_all_registers(tmp_path: Path) -> None:
    """The dispatcher's tables know two registers only; the CONTEXT on its stack has them all."""
    made = Made(
        {
            "handler": Function(40),
            "KiUserExceptionDispatcher": Function(1456 - 8),
            "framed": Function(64, pushed=["rbp"], frame="rbp"),
            "outer": Function(24),
        }
    )
    interrupted = made.at("framed", 20)
    context = bytearray(1456 - 8)
    dispatcher = LOW + 48
    where = dispatcher + 1456
    frame = where + 256
    struct.pack_into("<Q", context, 0x98, where)
    struct.pack_into("<Q", context, 0xA0, frame)
    struct.pack_into("<Q", context, 0xF8, interrupted)
    stack = bytes(40) + words(made.after_call("KiUserExceptionDispatcher")) + bytes(context) + words(interrupted)
    stack += bytes(256 + 64) + words(5, made.after_call("outer")) + bytes(64)
    walked = walk(made, stack, {"rip": made.after_call("handler"), "rbp": 0xBAD}, tmp_path, name="ntdll.dll")
    assert [place.function for place in walked.places.first(4)] == [
        "handler",
        "KiUserExceptionDispatcher",
        "framed",
        "outer",
    ]
    assert walked.places[2].pc == interrupted
    assert walked.frame(3).found_by == "cfi"


def test_a_call_that_names_another_function_did_not_lead_here(tmp_path: Path) -> None:
    made = Made(
        {
            "first": Function(),
            "here": Function(pushed=["r15"], frame="r15"),  # r15 is not known: nothing but a search leads on
            "to_first": Function(code=b"\x90" * 11 + b"\xe8" + struct.pack("<i", -(2 * 32 + 16))),
            "to_here": Function(code=b"\x90" * 11 + b"\xe8" + struct.pack("<i", -(2 * 32 + 16))),
            "by_pointer": Function(code=b"\x90" * 14 + b"\xff\xd0"),
        }
    )
    stale, direct, indirect = (made.after_call(name) for name in ("to_first", "to_here", "by_pointer"))
    for real, name in ((direct, "to_here"), (indirect, "by_pointer")):
        walked = walk(made, words(1, stale, 2, stale, real) + bytes(64), {"rip": made.at("here", 20)}, tmp_path)
        assert [place.function for place in walked.places.first(2)] == ["here", name]
        assert walked.frame(1).found_by == "scan"
    walked = walk(made, words(1, stale, 2) + bytes(64), {"rip": made.at("here", 20)}, tmp_path)
    assert walked.places[1].function == "to_first", "better than nothing"


def test_recursions_of_several_functions_are_followed_without_tables_too() -> None:
    made = Made({"one": Function(), "two": Function(), "three": Function()})
    addresses = [made.after_call(name) for name in ("one", "two", "three")]
    turn = b"".join(bytes(16 * index) + words(address) for index, address in enumerate(addresses))
    walked = walk(made, turn * 20_000 + bytes(64), {"rip": made.at("one")}, None)
    assert len(walked) == 60_001
    assert {frame.found_by for frame in walked.kept()[1:]} == {"scan"}
    assert [place.pc for place in walked.places.first(7)[1:]] == addresses * 2
    fold = folded(walked)[0].fold
    assert (fold.period, fold.bytes_per_period) == (3, 72)


@wine.needed
def test_without_the_systems_own_images_a_stack_ends_where_threads_begin() -> None:
    exe = wine.mingw(HERE / "dies.cc", "-O1")
    crash = open_minidump.read(wine.dump(exe, "null"), images=[exe.parent])
    thread = crash.crashed_thread
    assert thread is not None
    assert functions(thread) == ["read_null", "level_2", "level_1", *CRT[:3], None, None]
    assert [frame.module for frame in (thread.frames or ())[-2:]] == ["kernel32.dll", "ntdll.dll"]
    assert (thread.frames or ())[-1].found_by == "scan"
    assert thread.complete
    assert any("kernel32.dll, ntdll.dll" in gap.why for gap in crash.gaps if gap.part == "images")
