"""Programs that die on AArch64 under supervision: what is said of them, and their frames and lines."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest
import supervision
from supervision import LOOPS, Case, Found

from aarch64_deaths import ALIKE
from necropsy.model import Frame, Report

_SOURCE = Path(__file__).parents[1] / "capture/linux/aarch64/dies.cpp"
_FLAGS = ("-O1", "-fno-optimize-sibling-calls", "-march=armv8.5-a", "-mbranch-protection=standard", "-pthread", "-w")
_LINK = ("-fstack-protector-strong", "-Wl,--build-id")
_STACK = {"recursion": 256 << 10, "deep-recursion": 8 << 20}
"""Limits of the stack in bytes, where not 1 MiB."""

OF_PROGRAMS = (
    *ALIKE,
    ("readonly", "write-to-readonly certain", ["fill", "main", "_start"], "reading only"),
    ("recursion", "stack-overflow-recursion certain", None, "called each other"),
    ("deep-recursion", "stack-overflow-recursion certain", ["dig", "main", "_start"], "called itself"),
    ("abort", "abort certain", ["main", "_start"], "abort"),
    ("exception", "uncaught-cpp-exception certain", ["main", "_start"], "the table is empty"),
)

RECURSION = """import sys
sys.setrecursionlimit(1 << 30)
class A:
    def __repr__(self):
        return repr(self)
repr(A())
"""
DOUBLE_FREE = """import ctypes
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
def twice(p):
    libc.free(p); libc.free(p)
twice(ctypes.c_void_p(libc.malloc(2000)))
"""
IN_THREAD = """import ctypes, threading
def read():
    ctypes.string_at(8)
threading.Thread(target=read).start()
"""
PYTHON = {
    "null": "import ctypes\ndef read(p):\n    ctypes.string_at(p)\nread(8)\n",
    "write": "import ctypes\ndef poke():\n    ctypes.memset(0, 1, 100)\npoke()\n",
    "recursion": RECURSION,
    "abort": "import os\ndef stop():\n    os.abort()\nstop()\n",
    "faulthandler": "import ctypes, faulthandler\nfaulthandler.enable()\ndef read():\n    ctypes.string_at(8)\nread()\n",
    "thread": IN_THREAD,
    "double-free": DOUBLE_FREE,
}
SAYS_WITH_52_BITS = {"smash-unprotected": "where there is no memory"}
"""A failed signature leaves what was in bits 48 to 51, and text may have been there: it is not told from another address."""
PROBED = {
    # Its stack is small, and how much the frame would have taken is not known when a probe fails.
    "large-frame": "stack-overflow-small-stack certain",
    "recursion": "stack-overflow-recursion certain",
    "thread-overflow": "stack-overflow-recursion certain",
}
OF_PYTHON = (
    ("null", "null-dereference certain", "read", 3),
    ("write", "null-dereference certain", "poke", 3),
    ("recursion", "stack-overflow-recursion certain", "A.__repr__", 5),
    ("abort", "ended-by-its-own-call likely", "stop", 3),
    ("faulthandler", "null-dereference certain", "read", 4),
    ("thread", "null-dereference certain", "read", 3),
    ("double-free", "double-free likely", "twice", 5),
)


@pytest.fixture(scope="module", params=LOOPS)
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Found]:
    loop: str = request.param
    machine = supervision.machine()
    program = tmp_path_factory.mktemp("aarch64") / "dies"
    subprocess.run(["aarch64-linux-gnu-g++", *_FLAGS, *_LINK, _SOURCE, "-o", program], check=True)
    scripts = {f"/opt/{name}.py": code.encode() for name, code in PYTHON.items()}
    # As Debian 13 and Fedora build: a frame of more than 64 KiB is touched piece by piece, from its top down.
    probed = program.with_name("probed")
    subprocess.run(
        ["aarch64-linux-gnu-g++", *_FLAGS, *_LINK, "-fstack-clash-protection", _SOURCE, "-o", probed], check=True
    )
    machine.put({"/opt/dies": program.read_bytes(), "/opt/probed": probed.read_bytes(), **scripts})
    cases = [
        # Half of them as an ordinary user; a core is kept of each, and opened.
        Case(
            f"dies {name}",
            ["/opt/dies", name],
            user="user" if number % 2 else None,
            stack=_STACK.get(name, 1 << 20),
            loop=loop,
            options={"core": "small", "log": "tap"},
        )
        for number, (name, *_) in enumerate(OF_PROGRAMS)
    ]
    cases.append(Case("dies division", ["/opt/dies", "division"], loop=loop))
    cases += [Case(f"probed {name}", ["/opt/probed", name], stack=512 << 10, loop=loop) for name in PROBED]
    cases += [Case(f"python {name}", ["python3", f"/opt/{name}.py"], user="user", loop=loop) for name in PYTHON]
    return supervision.run(cases)


def _verdict(report: Report) -> str:
    verdict = report.verdict
    return "none" if verdict is None else f"{verdict.rule} {verdict.confidence}"


def _own_frames(report: Report) -> list[str]:
    """The functions of the program itself, innermost first, without what repeats."""
    threads = report.crash.threads
    frames: tuple[Frame, ...] = (threads[0].frames or ()) if threads else ()
    return list(dict.fromkeys(one.function or "?" for one in frames if one.module == "dies"))


@pytest.mark.parametrize(("name", "verdict", "frames", "says"), OF_PROGRAMS)
def test_a_program_that_dies(
    found: dict[str, Found], name: str, verdict: str, frames: list[str] | None, says: str
) -> None:
    one = found[f"dies {name}"]
    report = one.report
    assert _verdict(report) == verdict
    assert report.verdict is not None
    assert (SAYS_WITH_52_BITS.get(name, says) if supervision.LARGE_PAGES else says) in report.verdict.summary
    assert frames is None or _own_frames(report) == frames
    fault = report.crash.fault
    assert fault is not None
    assert one.status == -signal.Signals[fault.signal]
    assert [gap.part for gap in report.crash.gaps] == ["frames"], "drgn alone is missing"


@pytest.mark.parametrize(("name", "frames"), [(name, frames) for name, _, frames, _ in OF_PROGRAMS])
def test_its_core_opens_and_shows_the_same(found: dict[str, Found], name: str, frames: list[str] | None) -> None:
    one = found[f"dies {name}"]
    (opened,) = one.opened
    assert opened.crash.fault is not None
    assert one.report.crash.fault is not None
    assert opened.crash.fault.signal == one.report.crash.fault.signal
    assert opened.crash.registers == one.report.crash.registers
    assert frames is None or _own_frames(opened) == frames


@pytest.mark.parametrize(("name", "verdict"), PROBED.items())
def test_a_stack_that_is_probed_every_64_kib_overflows_as_another(
    found: dict[str, Found], name: str, verdict: str
) -> None:
    assert _verdict(found[f"probed {name}"].report) == verdict


def test_a_division_by_zero_is_no_death(found: dict[str, Found]) -> None:
    one = found["dies division"]
    assert (one.status, one.out, one.reports) == (0, "0\n", ())


@pytest.mark.parametrize(("name", "verdict", "function", "line"), OF_PYTHON)
def test_a_python_program_that_dies(found: dict[str, Found], name: str, verdict: str, function: str, line: int) -> None:
    report = found[f"python {name}"].report
    assert _verdict(report) == verdict
    (thread,) = (one for one in report.crash.threads or () if one.crashed)
    places = [(one.function, one.line) for one in thread.python or () if one.source == f"/opt/{name}.py"]
    assert places[:1] == [(function, line)]
    assert [gap.part for gap in report.crash.gaps] == ["frames"], "drgn alone is missing"


def test_two_functions_that_call_each_other_are_folded(found: dict[str, Found]) -> None:
    report = found["dies recursion"].report
    assert report.crash.threads is not None
    (fold,) = report.crash.threads[0].folds
    assert (fold.period, set(fold.functions)) == (2, {"even", "odd"})
    assert _own_frames(report)[2:] == ["main", "_start"]


def test_hundreds_of_thousands_of_signed_frames_are_followed_and_folded(found: dict[str, Found]) -> None:
    threads = found["dies deep-recursion"].report.crash.threads
    assert threads is not None
    assert threads[0].frames_total is not None
    assert threads[0].frames_total > 500_000
    assert [fold.functions for fold in threads[0].folds] == [("dig",)]
