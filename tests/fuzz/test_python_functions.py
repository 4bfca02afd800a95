"""Python functions as targets, and what the engine makes of workers that die, hang and ask for memory. No TensorFlow."""

from __future__ import annotations

import errno
import itertools
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from forbidding import FORBID
from necropsy import fuzzing
from necropsy.errors import InputError, NecropsyError
from necropsy.fuzz.campaign import Campaign
from necropsy.fuzz.definitions import python_function
from necropsy.fuzz.engine import Call, Engine, RefusedTargetError
from necropsy.fuzz.generator import Generator, Seen
from necropsy.fuzz.limits import Limits
from necropsy.fuzz.op_campaigns import Interrupts, Options, campaigns
from necropsy.fuzz.opened_target import OpenTarget
from necropsy.fuzz.recorded_calls import Recorded

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked")

BINDINGS = '''
import ctypes
import os

import numpy as np

libc = ctypes.CDLL(None)
libc.strlen.argtypes = [ctypes.c_void_p]


def length(text: bytes, at: int) -> int:
    """Reads at any address below 4096."""
    if len(text) > 3 and 0 <= at < 4096:
        return libc.strlen(at)
    if at > 1 << 31:
        raise ValueError(f"{at} is too large")
    return len(text)


def between(number: int) -> int:
    return libc.strlen(8) if 300_000 < number < 900_000 else number


def total(values: np.ndarray, weight: float = 1.0) -> float:
    return float(values.sum() * weight)


def unhinted(values):
    return values
'''

SCALE = {"x": "float", "n": "int"}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bindings") / "bindings.py"
    path.write_text(BINDINGS)
    return path


def engine_of(file: Path, function: str, limits: Limits | None = None) -> Engine:
    wanted = {"module": str(file), "function": function, "folder": str(file.parent)}
    return Engine(sys.executable, wanted, limits)


@pytest.fixture(scope="module")
def engine(file: Path) -> Iterator[Engine]:
    one = engine_of(file, "length", Limits(data=1 << 30))
    yield one
    one.close()


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state != "Z"  # nobody may be there to wait for an orphan


def code(text: str) -> str:
    return f"(lambda **_given: __import__('builtins').exec({text!r}))"


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGKILL, signal.SIGTERM])
def test_a_worker_that_a_signal_kills(engine: Engine, number: signal.Signals) -> None:
    kill = (code(f"import os; os.kill(os.getpid(), {int(number)})"), "")
    fine = ("target", "text=b'ab', at=0")
    first, last = engine.run([fine, kill, fine])
    assert first.kind == "accepted"
    assert last.kind == "died"
    assert last.death is not None
    assert last.death.signal == number.name
    assert [one.kind for one in engine.run([fine, fine])] == ["accepted", "accepted"]


def test_a_worker_that_exits(engine: Engine) -> None:
    (end,) = engine.run([(code("import os; os._exit(3)"), "")])
    assert end.death is not None
    assert end.death.signature == "exit 3"


def test_messages_and_results(engine: Engine) -> None:
    several = engine.run([("target", f"text=b'', at={at}") for at in (5 << 31, 6 << 31)] + [("target", "text=")])
    assert [one.kind for one in several] == ["refused", "refused", "misused"]
    assert several[0].message == several[1].message != several[2].message
    assert engine.texts[several[0].message or ""] == f"ValueError: {5 << 31} is too large"
    one, other, third = engine.run([("target", f"text={text}, at=5000") for text in ("b'a'", "b'b'", "b'cc'")])
    assert one.digest == other.digest != third.digest


def test_numbers_that_no_table_has_are_drawn(file: Path) -> None:
    """One parameter has few boundary values; the campaign goes on with others instead of ending."""
    one = engine_of(file, "between")
    try:
        op = python_function(one.offered["function"])
        campaign = Campaign(one, op, seed=0, deadline=time.monotonic() + 300, most_calls=1500)
        campaign.run()
    finally:
        one.close()
    assert campaign.tally.executions >= 1500
    assert campaign.tally.deaths
    assert len(campaign.suspects) == 1


def test_limits(engine: Engine) -> None:
    engine.limit_seconds(0.5)
    assert engine.run([(code("while True: pass"), "")])[-1].kind == "slow"
    engine.limit_seconds(60)
    (end,) = engine.run([(code("bytearray(2 << 30)"), "")])
    assert (end.kind, engine.texts[end.message or ""].split(":")[0]) == ("refused", "MemoryError")
    engine.is_stopped = lambda: True
    assert engine.run([(code("import time; time.sleep(60)"), "")])[-1].kind == "stopped"
    engine.is_stopped = lambda: False


def test_output_is_not_kept_without_end(engine: Engine) -> None:
    (end,) = engine.run([(code("import os; os.write(2, b'x' * 100_000); os.abort()"), "")])
    assert end.kind == "died"
    assert len(engine.log()) <= 8000


def test_nothing_is_written_elsewhere(engine: Engine, tmp_path: Path) -> None:
    from necropsy import sandbox

    (end,) = engine.run([(code(f"open({str(tmp_path / 'x')!r}, 'w')"), "")])
    assert end.kind == ("refused" if sandbox.version() else "accepted")


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of system calls")
def test_without_ptrace_it_knows_the_signal_and_says_so(file: Path, tmp_path: Path) -> None:
    python = tmp_path / "python"
    words = [sys.executable, "-c", FORBID, "101", str(errno.EPERM), sys.executable]
    python.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    python.chmod(0o755)
    with OpenTarget(f"{file}:length", str(python), guard=False) as opened:
        kill = (code("import os; os.kill(os.getpid(), 11)"), "")
        (end,) = opened.engine.run([kill])
        assert end.death is not None
        assert (end.kind, end.death.signal) == ("died", "SIGSEGV")
        options = Options(calls=10, guard="off", tests=tmp_path / "tests")
        with Interrupts() as interrupts:
            document, _ = campaigns(opened, opened.ops, options, interrupts, lambda _text: None, first=Recorded())
    assert [gap.part for gap in document.gaps if gap.part == "ptrace"] == ["ptrace"]


def test_a_fork_server_that_is_gone(file: Path) -> None:
    one = engine_of(file, "length")
    server = one._process
    assert server is not None
    fine = ("target", "text=b'ab', at=0")
    assert one.run([fine])[0].kind == "accepted"
    worker = one._pid
    assert worker is not None
    server.kill()
    server.wait()
    with pytest.raises(NecropsyError):
        one.run([fine], fresh=True)
    one.close()
    assert not is_running(server.pid)
    until = time.monotonic() + 60
    while is_running(worker) and time.monotonic() < until:  # the kernel ends it with the server, in its own time
        time.sleep(0.01)
    assert not is_running(worker)


@pytest.mark.parametrize(
    ("function", "what"),
    [("missing", "module"), ("os", "module"), ("unhinted", None)],
    ids=["missing", "module", "any"],
)
def test_what_cannot_be_loaded(file: Path, function: str, what: str | None) -> None:
    if what is None:
        one = engine_of(file, function)
        with pytest.raises(InputError, match="the parameter values of unhinted has no type hint"):
            python_function(one.offered["function"])
        one.close()
        return
    with pytest.raises(RefusedTargetError) as raised:
        engine_of(file, function)
    assert raised.value.what == what


def test_arrays(file: Path) -> None:
    one = engine_of(file, "total")
    op = python_function(one.offered["function"])
    assert [each.name for each in op.inputs] == ["values"]
    assert [(each.name, each.type) for each in op.attributes] == [("weight", "float")]
    assert one.run([("target", "values=np.full([3], 2.0, np.float64), weight=0.5")])[0].kind == "accepted"
    one.close()


@pytest.mark.slow
def test_ctrl_c(file: Path, tmp_path: Path) -> None:
    """What was found until then is diagnosed and written."""
    sent = False

    def watch(text: str) -> None:
        nonlocal sent
        if "1 kind of death" in text and not sent:
            sent = True
            os.kill(os.getpid(), signal.SIGINT)

    options = fuzzing.Options(budget_s=300, tests=tmp_path / "tests")
    document, interrupt = fuzzing.fuzzed(f"{file}:length", options, watch)
    assert isinstance(interrupt, KeyboardInterrupt)
    assert not document.complete
    assert document.fuzz is not None
    assert len(document.fuzz.findings) == 1
    assert [one.name for one in (tmp_path / "tests").iterdir()] == ["test_length.py"]


@pytest.mark.slow
def test_a_campaign(file: Path, tmp_path: Path) -> None:
    target = f"{file}:length"
    words = [sys.executable, "-m", "necropsy", "fuzz", target, "--calls", "400", "--budget", "200", "--json", "f.json"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1, done.stderr
    found = json.loads((tmp_path / "f.json").read_bytes())["fuzz"]
    (finding,) = found["findings"]
    assert finding["rule"] in {"null-dereference", "invalid-read"}
    assert finding["call"]["attributes"]["at"] == 0
    assert finding["reproduced"] == {"runs": 5, "crashed": 5}
    test = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", finding["test"]]
    assert subprocess.run(test, cwd=tmp_path, capture_output=True, check=False).returncode == -signal.SIGSEGV
    file.write_text(BINDINGS.replace("return libc.strlen(at)", "return 0"))
    assert subprocess.run(test, cwd=tmp_path, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_costs_one_of_the_outputs_only(file: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "necropsy", "fuzz", f"{file}:total", "--calls", "20", "--json"]
    done = subprocess.run([*words, "/dev/full"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 125
    assert "40 accepted" in done.stdout
    assert "necropsy: cannot write /dev/full: No space left on device" in done.stderr
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*words, "f.json"], cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 125
    assert "necropsy: cannot write to stdout: No space left on device" in done.stderr
    assert json.loads((tmp_path / "f.json").read_bytes())["fuzz"]["executions"] == 40


def test_a_closed_pipe(file: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "necropsy", "fuzz", f"{file}:total", "--calls", "20", "--json", "f.json"]
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(words, cwd=tmp_path, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(writing)
    assert done.stderr == ""
    assert json.loads((tmp_path / "f.json").read_bytes())["fuzz"]["executions"] == 40


def repeated(*, heard: bool) -> int:
    """How many of the last 2,000 of 5,000 proposals repeat an earlier one, where all calls are accepted."""
    parameters = [{"name": name, "kind": kind, "by_name": True, "needed": True} for name, kind in SCALE.items()]
    op = python_function({"name": "scale", "parameters": parameters, "numpy": True})
    seen, known, again = Seen(), set[Call](), 0
    for number, one in enumerate(itertools.islice(Generator(op, 1, seen).proposals(), 5000)):
        is_known = one.recipe.call in known
        again += is_known and number >= 3000
        known.add(one.recipe.call)
        if not is_known:
            seen.note(one.recipe, accepted=True, text=None)
        if heard:
            seen.note_proposal(again=is_known)
    return again


def test_more_is_drawn_at_random_where_proposals_repeat() -> None:
    assert repeated(heard=True) < 0.8 * repeated(heard=False)
