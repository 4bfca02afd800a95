"""A dying process is held while somebody shows its report: nobody notices its death before."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from necropsy.watch import asking, client

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are held by ptrace")

CRASH = "import ctypes, necropsy; assert necropsy.enable(show=False, keep=False); input(); ctypes.string_at(0)"


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> subprocess.Popen[bytes]:
    monkeypatch.setenv(client.VARIABLE, "")  # it is put back after the test
    client.start()
    return subprocess.Popen([sys.executable, "-c", CRASH], stdin=subprocess.PIPE)


def has_ended(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        return process.wait(seconds) is not None
    except subprocess.TimeoutExpired:
        return False


def test_a_process_is_held_until_its_report_was_shown(dying: subprocess.Popen[bytes]) -> None:
    assert dying.stdin is not None
    with dying.stdin:
        dying.stdin.write(b"\n")
    document, release = asking.held_report(dying.pid, 60)
    assert document is not None
    assert document.reports[0].crash.pid == dying.pid
    assert not has_ended(dying, 0.5)
    release()
    assert dying.wait(60) == -11


@pytest.mark.parametrize(
    "ask",
    [pytest.param(asking.report, id="who asks does not hold it"), pytest.param(lambda *_: None, id="nobody asks")],
)
def test_a_process_that_nobody_holds_ends(dying: subprocess.Popen[bytes], ask: Callable[[int, float], object]) -> None:
    assert dying.stdin is not None
    with dying.stdin:
        dying.stdin.write(b"\n")
    ask(dying.pid, 60)
    assert dying.wait(60) == -11
