"""Memory that was unmapped before it was used: what the dead process still shows of what had been there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from live import compiled, library, python, report_of, told

from necropsy import serialize
from necropsy.model import Crash
from necropsy.rule import Rule
from necropsy.rules.crash import bad_jump, use_after_free

NATIVE = """
    #include <stdlib.h>
    typedef int (*call_t)(int);
    static char *kept;
    static call_t call;
    void make(size_t size) { kept = malloc(size); }
    void drop(void) { free(kept); }
    int look(size_t at) { return kept[at]; }
    int peek(char *block, size_t at) { return block[at]; }
    void set(call_t given) { call = given; }
    int fire(void) { return call(3) + 1; }
"""
PLUGIN = "int twice(int x) { return 2 * x; }"


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("native")
    compiled(PLUGIN, folder / "plugin.so", "-shared", "-fPIC")
    return library(NATIVE, folder)


def start(native: Path) -> str:
    return f"""
    import ctypes
    lib = ctypes.CDLL({str(native)!r})
    lib.make.argtypes = lib.look.argtypes = [ctypes.c_size_t]
    lib.peek.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    lib.set.argtypes = [ctypes.c_void_p]
    """


def outcome(code: str, folder: Path, rule: Rule[Crash]) -> int:
    """How the program ends under the first experiment that the rule proposes for the death that was reported."""
    crash = serialize.loads((folder / "report.json").read_bytes()).reports[0].crash
    assert rule.experiments is not None
    change = rule.experiments(crash)[0].change
    variables = {name: value for name, value in change.environment.items() if value is not None}
    preload = {"LD_PRELOAD": ":".join(change.preload)} if change.preload else {}
    return subprocess.run(python(code), env={**os.environ, **variables, **preload}, check=False).returncode


def test_a_callback_into_a_library_that_was_unloaded(native: Path, tmp_path: Path) -> None:
    code = f"""{start(native)}
    import _ctypes
    plugin = ctypes.CDLL({str(native.with_name("plugin.so"))!r})
    lib.set(ctypes.cast(plugin.twice, ctypes.c_void_p))
    _ctypes.dlclose(plugin._handle)
    lib.fire()
    """
    report = report_of(python(code), tmp_path)
    verdict = report["verdict"]
    assert (verdict["rule"], verdict["confidence"]) == ("bad-jump", "certain")
    assert "`plugin.so`, a library that had been unloaded" in verdict["summary"]
    former = report["crash"]["fault"]["former"]
    assert int(former["low"], 16) <= int(report["crash"]["fault"]["address"], 16) < int(former["high"], 16)
    assert former["name"] == str(native.with_name("plugin.so"))
    assert outcome(code, tmp_path, bad_jump.RULE) == 0, "it lives where the library stays loaded"


def test_a_large_block_that_was_freed(native: Path, tmp_path: Path) -> None:
    code = f"{start(native)}\n    lib.make(1 << 20)\n    lib.drop()\n    lib.look(1000)\n"
    verdict = report_of(python(code), tmp_path)["verdict"]
    assert (verdict["rule"], verdict["confidence"]) == ("use-after-free", "likely")
    assert "a large block of memory that had been freed" in verdict["summary"]
    assert "the largest of them 1,052,672 bytes" in told({"verdict": verdict})
    assert outcome(code, tmp_path, use_after_free.RULE) == 0, "it lives where the block stays mapped"


def test_an_index_beyond_a_block_is_no_freed_one(native: Path, tmp_path: Path) -> None:
    """The index hits what was a freed block, and a register still has its address; but the block in use is mapped."""
    code = f"""{start(native)}
    libc = ctypes.CDLL("libc.so.6")
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    freed, used = sorted((libc.malloc(1 << 20), libc.malloc(1 << 20)), reverse=True)
    libc.free(freed)
    lib.peek(used, freed - used + 100, ctypes.c_void_p(freed))
    """
    report = report_of(python(code), tmp_path)
    assert report["verdict"]["rule"] == "invalid-read"
    assert report["crash"]["fault"]["former"] is None
    assert any(int(value, 16) % 4096 == 16 for value in report["crash"]["registers"].values())


def test_shared_memory_that_was_closed(native: Path, tmp_path: Path) -> None:
    code = f"""{start(native)}
    from multiprocessing import shared_memory
    shared = shared_memory.SharedMemory(create=True, size=1 << 16)
    block = ctypes.c_char.from_buffer(shared.buf)
    address = ctypes.addressof(block)
    del block
    shared.close()
    shared.unlink()
    lib.peek(address, 100)
    """
    verdict = report_of(python(code), tmp_path)["verdict"]
    assert verdict["rule"] == "use-after-free"
    assert "`shared` (SharedMemory" in verdict["summary"]
    assert verdict["fixes"][0]["text"].startswith("Close `shared` only after the last use")


def test_an_array_over_a_file_that_was_closed(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    code = f"""
    import numpy as np
    def interface():
        table = np.memmap({str(tmp_path / "table")!r}, dtype="f8", mode="w+", shape=(1 << 16,))
        return dict(table.__array_interface__)
    class Raw:
        __array_interface__ = interface()
    raw = np.asarray(Raw())
    print(raw.sum())
    """
    verdict = report_of(python(code), tmp_path)["verdict"]
    assert verdict["rule"] == "use-after-free"
    assert "NumPy read memory" in verdict["summary"] and "`raw`" in told({"verdict": verdict})
