"""``necropsy.run``: real processes that crash, end well, hang, or do not exist."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import necropsy
from necropsy.errors import (
    CommandNotFoundError,
    NecropsyError,
    NoInputError,
    NotExecutableError,
    OptionError,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the supervisor of Linux")

NULL_READ = "import ctypes\ndef read():\n    ctypes.string_at(0)\nread()\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("crashed")


@pytest.fixture(scope="module")
def crashed(folder: Path) -> necropsy.RunResult:
    (folder / "job.py").write_text(f"import sys\nprint('out')\nprint('last words', file=sys.stderr)\n{NULL_READ}")
    return necropsy.run(
        [sys.executable, "-u", Path("job.py")], cwd=folder, capture_output=True, reports=folder / "kept"
    )


def test_a_crash_is_diagnosed(crashed: necropsy.RunResult) -> None:
    assert (crashed.returncode, crashed.exit_code, crashed.signal) == (-signal.SIGSEGV, None, "SIGSEGV")
    assert not crashed.timed_out
    assert crashed.command == (sys.executable, "-u", "job.py")
    assert crashed.report is not None
    verdict = crashed.report.reports[0].verdict
    assert verdict is not None
    assert verdict.rule == "null-dereference"
    assert "job.py" in necropsy.render(crashed.report)


def test_the_output_is_captured_and_the_report_has_its_end(crashed: necropsy.RunResult) -> None:
    assert (crashed.stdout, crashed.stderr) == (b"out\n", b"last words\n")
    assert crashed.document is not None
    assert crashed.document.reports[0].crash.log_tail == "last words\n"


def test_the_report_is_kept_in_the_folder_that_was_named(
    crashed: necropsy.RunResult, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert crashed.document is not None
    monkeypatch.setenv("NECROPSY_OUTPUT", str(folder / "kept"))
    kept = necropsy.latest(pid=crashed.document.processes[0].pid)
    assert kept is not None
    assert kept.id == crashed.document.id


def test_check_raises_what_killed_it(crashed: necropsy.RunResult) -> None:
    with pytest.raises(necropsy.Crashed) as caught:
        crashed.check()
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.rule, error.signal, error.exit_code) == ("null-dereference", "SIGSEGV", None)
    assert [frame["function"] for frame in error.python][-2:] == ["read", "<module>"]
    assert "string_at" in str(error)
    assert crashed.document is not None
    assert error.report is not None and error.report.id == crashed.document.id


def test_run_itself_checks(tmp_path: Path) -> None:
    with pytest.raises(necropsy.Crashed) as caught:
        necropsy.run(["sh", "-c", "kill -ABRT $$"], check=True, reports=tmp_path)
    assert caught.value.signal == "SIGABRT"


@pytest.mark.parametrize("code", [0, 3, 127])
def test_an_exit_code_is_no_crash(code: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    result = necropsy.run(["sh", "-c", f"echo said; exit {code}"], check=True, reports=tmp_path)
    assert (result.returncode, result.exit_code, result.signal, result.report) == (code, code, None, None)
    assert (result.stdout, result.stderr) == (None, None)
    assert result.document is not None
    assert result.document.kind == "run"
    assert capfd.readouterr() == ("said\n", "")


def test_a_timeout_says_where_it_stood(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-c", "import time\ntime.sleep(300)"]
    result = necropsy.run(command, timeout=1, check=True, reports=tmp_path)
    assert (result.timed_out, result.exit_code) == (True, 124)
    assert result.report is not None
    assert result.report.reports[0].verdict is not None
    assert result.report.reports[0].verdict.rule == "hang"
    assert capfd.readouterr() == ("", "")


def test_input_environment_and_folder_are_the_commands(tmp_path: Path) -> None:
    variables = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "WORD": "given"}
    result = necropsy.run(
        ["sh", "-c", 'cat; echo "$WORD in $PWD"; env | grep ^NECROPSY_ >&2'],
        input=b"typed ",
        env=variables,
        cwd=tmp_path,
        capture_output=True,
    )
    assert result.stdout == f"typed given in {tmp_path}\n".encode()
    assert result.stderr == b""


@pytest.mark.parametrize(
    ("command", "error", "code"),
    [
        (["no-such-command-here"], CommandNotFoundError, 127),
        (["/no/such/file"], CommandNotFoundError, 127),
        (["/etc/passwd"], NotExecutableError, 126),
    ],
)
def test_what_cannot_be_started_is_an_error_and_is_not_printed(
    command: list[str], error: type[NecropsyError], code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(error, match=command[0]) as caught:
        necropsy.run(command)
    assert type(caught.value) is error
    assert caught.value.exit_code == code
    assert caught.value.hint
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("python train.py", {}),
        ([], {}),
        (["true", "\0"], {}),
        (["true"], {"timeout": 0}),
        (["true"], {"timeout": float("nan")}),
        (["true"], {"log": "loud"}),
        (["true"], {"log": "pipe"}),
    ],
)
def test_wrong_arguments_start_nothing(command: Any, options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        necropsy.run(command, **options)


def test_a_folder_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(NoInputError, match="nowhere"):
        necropsy.run(["true"], cwd=tmp_path / "nowhere")


def state() -> tuple[object, ...]:
    return (
        signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGCHLD, signal.SIGTERM)],
        sorted(os.listdir("/proc/self/fd")),
        os.getcwd(),
        dict(os.environ),
        threading.active_count(),
    )


def test_the_calling_process_stays_as_it_is(tmp_path: Path) -> None:
    before = state()
    other = subprocess.Popen(["sh", "-c", "exit 7"])
    necropsy.run(["true"], reports=tmp_path)
    assert state() == before
    assert other.wait() == 7, "its own children are not waited for"


def wait_for(condition: Callable[[], bool]) -> bool:
    for _ in range(2400):
        if condition():
            return True
        time.sleep(0.05)
    return False


def test_an_interrupt_ends_the_command(tmp_path: Path) -> None:
    place = tmp_path / "pid"

    def interrupt() -> None:
        wait_for(lambda: place.exists() and place.read_text().endswith("\n"))
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        necropsy.run(["sh", "-c", f"echo $$ > {place}; exec sleep 300"], reports=tmp_path / "kept")
    thread.join()
    assert wait_for(lambda: not Path(f"/proc/{place.read_text().strip()}").exists())


def test_a_supervisor_that_hangs_is_killed_with_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time is up when it stands, however long it took to get there."""
    place = tmp_path / "pid"

    class Hangs(subprocess.Popen[bytes]):
        def wait(self, timeout: float | None = None) -> int:
            if timeout is None:
                return super().wait()
            assert wait_for(lambda: Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2][0] == "T")
            raise subprocess.TimeoutExpired(self.args, timeout)

    monkeypatch.setattr(subprocess, "Popen", Hangs)
    command = ["sh", "-c", f"trap '' TERM; echo $$ > {place}; kill -STOP $PPID; sleep 300; sleep 300"]
    result = necropsy.run(command, timeout=1000, check=True, reports=tmp_path / "kept")
    assert (result.timed_out, result.signal) == (True, "SIGKILL")
    assert wait_for(lambda: not Path(f"/proc/{place.read_text().strip()}").exists())


def test_many_threads_run_at_once(tmp_path: Path) -> None:
    codes: dict[int, int | None] = {}

    def one(code: int) -> None:
        codes[code] = necropsy.run(["sh", "-c", f"exit {code}"], reports=tmp_path).exit_code

    threads = [threading.Thread(target=one, args=(code,)) for code in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == {1: 1, 2: 2, 3: 3}


def test_a_profile_has_what_the_command_used() -> None:
    code = "import os; files = [open('/dev/null') for _ in range(20)]; print('done', flush=True); os._exit(4)"
    result = necropsy.profile([sys.executable, "-c", code], interval=0.02, capture_output=True)
    assert (result.exit_code, result.stdout, result.stderr) == (4, b"done\n", b"")
    assert result.document is not None
    assert result.document.kind == "profile"
    (process,) = result.document.processes
    assert process.peaks is not None
    assert (process.peaks.descriptors or 0) >= 20
    assert process.stacks


@pytest.mark.parametrize(
    ("command", "options", "error"),
    [
        ([], {}, OptionError),
        (["true"], {"interval": 0}, OptionError),
        (["true"], {"interval": float("nan")}, OptionError),
        (["true"], {"timeout": -1}, OptionError),
        (["true"], {"cwd": "/no/such/folder"}, NoInputError),
        (["no-such-command-here"], {}, CommandNotFoundError),
    ],
)
def test_what_cannot_be_profiled_is_an_error(
    command: list[str], options: dict[str, Any], error: type[NecropsyError]
) -> None:
    with pytest.raises(error):
        necropsy.profile(command, **options)
