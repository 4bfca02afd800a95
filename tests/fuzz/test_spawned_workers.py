"""Workers that are started and not forked, as on Windows: here they run on Linux. No TensorFlow."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from necropsy import fuzzing
from necropsy.errors import NecropsyError, NoInputError
from necropsy.fuzz import opened_target
from necropsy.fuzz.engine import RefusedTargetError
from necropsy.fuzz.limits import Limits
from necropsy.fuzz.spawned_engine import SpawnedEngine
from necropsy.fuzz.target import caught_crashes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tests/windows has the same under wine")

BINDINGS = """
import ctypes

libc = ctypes.CDLL(None)
libc.strlen.argtypes = [ctypes.c_void_p]


def length(at: int) -> int:
    if at < 0:
        raise ValueError(f"{at} is negative")
    return libc.strlen(at) if 7 <= at < 16 else at
"""
FINE = ("target", "at=5000")
DEADLY = ("target", "at=8")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bindings") / "bindings.py"
    path.write_text(BINDINGS)
    return path


def engine_of(file: Path, function: str = "length") -> SpawnedEngine:
    wanted = {"module": str(file), "function": function, "folder": str(file.parent)}
    return SpawnedEngine(sys.executable, wanted, Limits(data=1 << 30))


@pytest.fixture(scope="module")
def engine(file: Path) -> Iterator[SpawnedEngine]:
    one = engine_of(file)
    yield one
    one.close()


def code(text: str) -> str:
    return f"(lambda **_given: __import__('builtins').exec({text!r}))"


def test_results_and_messages(engine: SpawnedEngine) -> None:
    several = engine.run([FINE, ("target", "at=5001"), ("target", "at=-1"), ("target", "at=-2"), ("target", "at=")])
    assert [one.kind for one in several] == ["accepted", "accepted", "refused", "refused", "misused"]
    assert several[0].digest != several[1].digest
    assert several[2].message == several[3].message
    assert engine.texts[several[2].message or ""] == "ValueError: -1 is negative"


def test_a_death_costs_one_call_and_says_the_python_line(engine: SpawnedEngine) -> None:
    fine, died = engine.run([FINE, DEADLY, FINE])
    assert (fine.kind, died.kind) == ("accepted", "died")
    assert died.death is not None
    assert (died.death.signal, died.death.place) == ("SIGSEGV", "bindings.py:11")
    assert died.death.signature == "SIGSEGV bindings.py:11"
    starts = engine.starts
    assert [one.kind for one in engine.run([FINE, FINE])] == ["accepted", "accepted"]
    assert engine.starts == starts + 1


def test_a_fresh_worker(engine: SpawnedEngine) -> None:
    counted = (code("import sys; sys.made = getattr(sys, 'made', 0) + 1\nif sys.made > 1: raise OSError(sys.made)"), "")
    first = engine.run([counted], fresh=True)
    again = engine.run([counted])
    fresh = engine.run([counted], fresh=True)
    assert [one[0].kind for one in (first, again, fresh)] == ["accepted", "refused", "accepted"]


def test_limits(engine: SpawnedEngine) -> None:
    engine.limit_seconds(0.5)
    assert engine.run([(code("while True: pass"), "")])[-1].kind == "slow"
    engine.limit_seconds(60)
    (end,) = engine.run([(code("bytearray(2 << 30)"), "")])
    assert (end.kind, engine.texts[end.message or ""].split(":")[0]) == ("refused", "MemoryError")
    engine.is_stopped = lambda: True
    assert engine.run([(code("import time; time.sleep(60)"), "")])[-1].kind == "stopped"
    engine.is_stopped = lambda: False


def test_output_goes_to_the_log(engine: SpawnedEngine) -> None:
    written = "import os, sys; print(sys.stdin.read()); os.write(1, b'x' * 100_000); os.write(2, b'end'); os.abort()"
    (end,) = engine.run([(code(written), "")])
    assert end.death is not None and end.death.signal == "SIGABRT"
    assert len(engine.log()) <= 8000
    assert "xxend" in engine.log()


def test_a_comparison(engine: SpawnedEngine) -> None:
    (end,) = engine.run([FINE], compare=True)
    assert end.kind == "accepted"
    assert '"modified": []' in engine.texts[end.message or ""]


def test_what_cannot_be_loaded(file: Path) -> None:
    with pytest.raises(RefusedTargetError) as raised:
        engine_of(file, "missing")
    assert raised.value.what == "module"
    with pytest.raises(NecropsyError, match="cannot run"):
        SpawnedEngine(str(file.parent / "none"), {})
    (file.parent / "dying.py").write_text("import os, sys; print('last words', flush=True); os._exit(3)")
    with pytest.raises(NecropsyError, match="ended unexpectedly: last words"):
        engine_of(file.parent / "dying.py")


def test_no_worker_outlives_the_campaign(file: Path) -> None:
    program = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_spawned_workers import Path, code, engine_of
engine = engine_of(Path({str(file)!r}))
print(engine._worker._process.pid, flush=True)
engine.run([(code("import time; time.sleep(600)"), "")])
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        process.kill()
    until = time.monotonic() + 60
    while is_running(worker) and time.monotonic() < until:  # the kernel ends it in its own time
        time.sleep(0.01)
    assert not is_running(worker)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state != "Z"  # nobody may be there to wait for an orphan


def test_a_campaign(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first death to the test, with what is lacking in one gap."""
    monkeypatch.setattr(opened_target, "FORKS", False)
    monkeypatch.chdir(tmp_path)
    result = fuzzing.fuzz(f"{file}:length", calls=12, budget=300)
    assert result.complete
    assert result.executions >= 12
    (finding,) = result.findings
    assert finding.rule in {"null-dereference", "invalid-read"}
    assert finding.reproduced.crashed == 5
    assert [gap.part for gap in result.document.gaps] == ["fuzz without fork"]
    assert finding.test is not None
    assert result.tests == (tmp_path / finding.test,)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", finding.test]
    assert subprocess.run(words, capture_output=True, check=False).returncode == -signal.SIGSEGV


def test_ops_need_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened_target, "FORKS", False)
    with pytest.raises(NecropsyError, match="on Linux only") as raised:
        fuzzing.fuzz("tf.raw_ops.Abs")
    assert raised.value.hint is not None and "FILE.py:FUNCTION" in raised.value.hint
    with pytest.raises(NoInputError):
        fuzzing.fuzz("absent.py:length")


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("exception: access violation reading 0x0000000000000008", 0xC0000005),
        ("exception: access violation writing 0xFFFFFFFFFFFFFFFF", 0xC0000005),
        ("exception: integer divide by zero", 0xC0000094),
        ("exception: stack overflow", 0xC00000FD),
        ("exception: unheard of", None),
        ("no such file", None),
    ],
)
def test_what_ctypes_has_caught(text: str, status: int | None) -> None:
    assert caught_crashes.status_of(OSError(text)) == status
    assert caught_crashes.status_of(ValueError(text)) is None
    assert caught_crashes.status_of(OSError(5, text)) is None
