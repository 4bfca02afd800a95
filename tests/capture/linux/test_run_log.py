"""The end of stderr, by the kind of file that fd 2 is, and without a byte changed on its way."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from supervised import Terminal, python, record_of, run_and_record, started, until, words

from necropsy.capture.linux.stderr import bpf_probe
from necropsy.capture.linux.supervise.shared_memory import Ring

# Not by `echo >&2` of a shell: that one writes to fd 1, for which the tap does not look.
SAY = python("import os; os.write(2, b'first\\n'); os.write(2, b'last words\\n'); os.kill(os.getpid(), 11)")


def without_sys_admin() -> None:
    """As a user without privileges is, or root in a container."""
    import ctypes

    for capability in (21, 38, 39):  # CAP_SYS_ADMIN, CAP_PERFMON, CAP_BPF
        assert ctypes.CDLL(None).prctl(24, capability, 0, 0, 0) == 0  # PR_CAPBSET_DROP


MODES = [
    pytest.param("probe", marks=pytest.mark.skipif(not bpf_probe.is_allowed(), reason="needs CAP_BPF")),
    "tap",
    "pty",
]


def test_a_file_is_read_back_from_where_we_began(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text("of an earlier run\n")
    with file.open("ab") as log:
        _, record = run_and_record(SAY, tmp_path, popen={"capture_output": False, "stderr": log})
    assert record.crashes[0].log_tail == record.log_tail == "first\nlast words\n"
    assert file.read_text() == "of an earlier run\nfirst\nlast words\n"


def test_a_file_without_append(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        log.write(b"before\n")
        log.flush()
        _, record = run_and_record(SAY, tmp_path, popen={"capture_output": False, "stderr": log})
    assert record.log_tail == "first\nlast words\n"


def test_a_file_that_is_truncated_meanwhile(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text("x" * 5000)
    command = ["sh", "-c", f"echo lost >&2; : >{file}; echo kept >&2; kill -SEGV $$"]
    with file.open("ab") as log:
        _, record = run_and_record(command, tmp_path, popen={"capture_output": False, "stderr": log})
    assert record.log_tail == "kept\n"


def test_a_deleted_file(tmp_path: Path) -> None:
    file = tmp_path / "log"
    with file.open("ab") as log:
        _, record = run_and_record(
            ["sh", "-c", f"rm {file}; echo words >&2; kill -SEGV $$"],
            tmp_path,
            popen={"capture_output": False, "stderr": log},
        )
    assert record.log_tail == "words\n"


def test_a_long_log_keeps_its_end(tmp_path: Path) -> None:
    code = "import os, sys\nfor n in range(60000): os.write(2, b'line %06d\\n' % n)\nos.abort()"
    with (tmp_path / "log").open("ab") as log:
        _, record = run_and_record(python(code), tmp_path, popen={"capture_output": False, "stderr": log})
    assert record.log_tail is not None
    assert 256 * 1024 - len("line 000000\n") < len(record.log_tail) <= 256 * 1024
    assert record.log_tail.startswith("line "), "half a line could be half a secret"
    assert record.log_tail.endswith("line 059999\n")


@pytest.mark.parametrize("log", MODES)
def test_a_pipe(log: str, tmp_path: Path) -> None:
    done, record = run_and_record(SAY, tmp_path, log=log)
    assert done.returncode == -signal.SIGSEGV
    assert done.stderr == b"first\nlast words\n"
    assert record.crashes[0].log_tail == record.log_tail == "first\nlast words\n"


@pytest.mark.parametrize("log", MODES)
def test_a_long_log_through_a_pipe(log: str, tmp_path: Path) -> None:
    code = "import os\nfor n in range(40000): os.write(2, b'line %06d\\n' % n)\nos.write(2, b'y' * 100000 + b'\\n')"
    done, record = run_and_record(python(code), tmp_path, log=log)
    assert done.stderr == b"".join(b"line %06d\n" % n for n in range(40000)) + b"y" * 100000 + b"\n"
    assert record.log_tail is not None
    assert record.log_tail.endswith("y\n")
    assert "line 039999\n" in record.log_tail


def test_the_tap_reads_vectors(tmp_path: Path) -> None:
    done, record = run_and_record(python("import os; os.writev(2, [b'one ', b'', b'two\\n'])"), tmp_path, log="tap")
    assert done.stderr == b"one two\n"
    assert record.log_tail == "one two\n"


@pytest.mark.parametrize("log", MODES[:2])
def test_errors_of_the_write_itself_are_kept(log: str, tmp_path: Path) -> None:
    code = "import os, errno\nos.close(2)\ntry: os.write(2, b'x')\nexcept OSError as e: raise SystemExit(e.errno)"
    done, record = run_and_record(python(code), tmp_path, log=log)
    assert done.returncode == 9  # EBADF
    if log == "probe":
        assert record.log_tail == "", "what was not written was not said"


@pytest.mark.parametrize("log", MODES[:2])
def test_children_and_threads_are_heard(log: str, tmp_path: Path) -> None:
    code = """
import os, subprocess, sys, threading
subprocess.run([sys.executable, "-c", "import os; os.write(2, b'child\\\\n')"])
t = threading.Thread(target=os.write, args=(2, b"thread\\n")); t.start(); t.join()
"""
    _, record = run_and_record(python(code), tmp_path, log=log)
    assert record.log_tail == "child\nthread\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a capability to give away")
def test_without_privileges_auto_reads_nothing_and_says_so(tmp_path: Path) -> None:
    done, record = run_and_record(
        ["grep", "NoNewPrivs", "/proc/self/status"], tmp_path, popen={"preexec_fn": without_sys_admin}
    )
    assert done.stdout.split() == [b"NoNewPrivs:", b"0"]
    (gap,) = record.gaps
    assert gap.part == "log_tail"
    assert "a pipe" in gap.why and "--log tap" in gap.why


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a capability to give away")
def test_without_privileges_tap_costs_no_new_privs(tmp_path: Path) -> None:
    command = python("import os; os.system('grep NoNewPrivs /proc/self/status'); os.write(2, b'words\\n')")
    done, record = run_and_record(command, tmp_path, log="tap", popen={"preexec_fn": without_sys_admin})
    assert done.stdout.split() == [b"NoNewPrivs:", b"1"]
    assert record.log_tail == "words\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs CAP_SYS_ADMIN")
@pytest.mark.parametrize("log", ["auto", "tap"])
def test_with_privileges_it_costs_no_privilege(log: str, tmp_path: Path) -> None:
    command = ["grep", "-E", "NoNewPrivs|Seccomp:", "/proc/self/status"]
    done, record = run_and_record(command, tmp_path, log=log)
    # With the tap there is a filter; without, there is nothing of ours in the command.
    assert done.stdout.split() == [b"NoNewPrivs:", b"0", b"Seccomp:", b"2" if log == "tap" else b"0"]
    assert record.gaps == ()


def test_nothing_to_read(tmp_path: Path) -> None:
    _, record = run_and_record(SAY, tmp_path, popen={"capture_output": False, "stderr": subprocess.DEVNULL})
    gap = record.crashes[0].gap("log_tail")
    assert gap is not None and "/dev/null" in gap.why
    _, record = run_and_record(SAY, tmp_path, log="off")
    gap = record.crashes[0].gap("log_tail")
    assert gap is not None and "--log off" in gap.why


def test_a_child_with_a_stderr_of_its_own(tmp_path: Path) -> None:
    with (tmp_path / "log").open("ab") as log:
        command = ["sh", "-c", f"echo mine >&2; sh -c 'echo other >&2; kill -SEGV $$' 2>{tmp_path}/other; exit 0"]
        _, record = run_and_record(command, tmp_path, popen={"capture_output": False, "stderr": log})
    (crash,) = record.crashes
    assert crash.log_tail is None
    gap = crash.gap("log_tail")
    assert gap is not None and "elsewhere" in gap.why


@pytest.mark.parametrize("log", [*MODES, "auto"])
def test_a_terminal_shows_what_it_would_show(log: str, tmp_path: Path) -> None:
    record = tmp_path / "record"
    code = "import os; os.write(2, b'a\\n\\tb\\x1b[1mc\\x00\\xff\\r\\n'); os.write(1, b'out\\n')"
    shown = []
    for command in (python(code), words(python(code), log=log, record=record)):
        with Terminal(command) as terminal:
            terminal.wait()
            shown.append(terminal.rest())
    assert sorted(shown[0]) == sorted(shown[1]), shown
    if log != "auto":
        assert record_of(record).log_tail == "a\n\tb\x1b[1mc\x00\ufffd\r\n"


def test_the_relay_ends_with_its_reader() -> None:
    code = """
import os, time
try:
    while True:
        os.write(2, b"line\\n"); time.sleep(0.01)
except BrokenPipeError:
    os._exit(6)
"""
    with started(python(code), popen={"stderr": subprocess.PIPE}, log="pty") as front:
        assert front.stderr is not None
        front.stderr.readline()
        front.stderr.close()
        assert front.wait(30) == 6


def test_ring() -> None:
    ring = Ring(10)
    assert ring.tail() == b""
    ring.append(b"abc")
    assert ring.tail() == b"abc"
    ring.append(b"defghij")
    assert ring.tail() == b"abcdefghij"
    ring.append(b"KLM")
    assert ring.tail() == b"defghijKLM"
    ring.append(b"0123456789ABCDEF")
    assert ring.tail() == b"6789ABCDEF"
    ring.append(b"x" * 7)
    ring.append(b"y" * 4)
    assert ring.tail() == b"xxxxxxyyyy"


@pytest.mark.parametrize("log", MODES)
def test_a_daemon_that_outlives_keeps_its_stderr(log: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code = f"""
import os, time
if os.fork(): os._exit(0)
os.setsid()
failed = 0
for n in range(1000):
    try: os.write(2, b"line\\n")
    except OSError: failed += 1
    time.sleep(0.001)
open({str(out)!r}, "w").write(str(failed))
"""
    with (tmp_path / "log").open("wb") as file, started(python(code), popen={"stderr": file}, log=log) as front:
        assert front.wait(30) == 0
        until(lambda: out.exists() and out.read_text(), "the daemon's own end")
    assert out.read_text() == "0"


@pytest.mark.skipif(not bpf_probe.is_allowed(), reason="the probe needs root")
def test_a_process_is_heard_after_another_thread_than_its_first_has_executed_a_program(tmp_path: Path) -> None:
    code = """
import os, sys, threading, time
os.write(2, b"before\\n")
after = [sys.executable, "-c", "import os; os.write(2, b'after\\\\n')"]
threading.Thread(target=lambda: os.execv(sys.executable, after)).start()
time.sleep(60)
"""
    _, record = run_and_record(python(code), tmp_path, log="probe")
    assert record.log_tail == "before\nafter\n"
