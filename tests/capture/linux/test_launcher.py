"""The program `necropsy` where it was compiled: what Python's own start destroys is kept for the command.

Most tests put a script of their own in the place of the console script, and look at what it was started with.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from supervised import BY_LAUNCHER, COMMAND, until

import needs
from necropsy import launcher

pytestmark = pytest.mark.skipif(not BY_LAUNCHER, reason="necropsy was installed without its launcher")

SETTINGS: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "timeout": 60}
LOOK = ["grep", "-E", "Sig(Ign|Blk|Pnd)|ShdPnd", "/proc/self/status"]
RUN = [str(COMMAND), "run"]


def both(*around: str, command: list[str], **settings: Any) -> list[tuple[int, bytes]]:
    """Exit code and output, plain and under necropsy."""
    done = [subprocess.run([*around, *one], check=False, **SETTINGS, **settings) for one in (command, RUN + command)]
    return [(one.returncode, one.stdout) for one in done]


# ------------------------------------------------------------ what the command inherits


@pytest.mark.parametrize("ignored", ["PIPE", "XFSZ", "PIPE XFSZ USR1 INT"])
def test_signals_that_were_ignored_before_exec(ignored: str) -> None:
    plain, ours = both("sh", "-c", f"trap '' {ignored}; exec \"$@\"", "sh", command=LOOK)
    assert ours == plain


@pytest.mark.parametrize("restore", [True, False])
def test_python_as_the_parent_with_and_without_restore_signals(restore: bool) -> None:
    plain, ours = both(command=LOOK, restore_signals=restore)
    assert ours == plain
    assert bool(int(plain[1].split(b"SigIgn:")[1].split()[0], 16) >> (signal.SIGPIPE - 1) & 1) is not restore


def test_a_signal_that_was_blocked_stays_blocked() -> None:
    block = "import os, signal, sys; signal.pthread_sigmask(0, [2, 15]); os.execvp(sys.argv[1], sys.argv[1:])"
    plain, ours = both(sys.executable, "-c", block, command=LOOK)
    assert ours == plain


def test_the_stack_limit_of_the_command_is_the_one_that_was_given() -> None:
    command = ["sh", "-c", "ulimit -s; ulimit -H -s; exit 3"]
    plain, ours = both("sh", "-c", 'ulimit -S -s 64; exec "$@"', "sh", command=command)
    assert ours == plain
    assert ours[1].startswith(b"64\n")


def test_the_command_does_not_see_the_record() -> None:
    assert both("env", "-i", "B=2", "A=1", command=["/usr/bin/env"]) == [(0, b"B=2\nA=1\n")] * 2
    done = subprocess.run([*RUN, "env"], check=False, env={launcher.VARIABLE: "1,4096,0", "PATH": "/bin"}, **SETTINGS)
    assert done.stdout == b"PATH=/bin\n"


def test_a_record_of_another_process_does_not_count() -> None:
    words = [sys.executable, "-m", "necropsy", "run", *LOOK]
    plain = subprocess.run(LOOK, check=False, **SETTINGS)
    for record in ("1,4096,0", "x,y,z", ""):
        done = subprocess.run(words, check=False, env={**os.environ, launcher.VARIABLE: record}, **SETTINGS)
        assert (done.returncode, done.stdout, done.stderr) == (0, plain.stdout, b"")


def test_what_another_necropsy_is_told(tmp_path: Path) -> None:
    """Each run of `--confirm` inherits what its command inherits."""
    own = {launcher.VARIABLE: "0,4096,0,65536,18446744073709551615"}
    code = "from necropsy import launcher as l; l.take(); print(l.record().stack, l.for_another())"
    done = subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, **own}, **SETTINGS)
    assert done.stdout.decode() == f"(65536, -1) {own}\n"
    words = [sys.executable, "-m", "necropsy", "run", "sh", "-c", "ulimit -S -s; exec grep SigIgn /proc/self/status"]
    done = subprocess.run(words, check=True, env={**os.environ, **own}, **SETTINGS)
    size, _, ignored = done.stdout.partition(b"\nSigIgn:")
    assert (size, int(ignored, 16) & 0x7FFFFFFF) == (b"64", 1 << (signal.SIGPIPE - 1))


# ------------------------------------------------------------ the start


def installed(folder: Path, script: str) -> Path:
    """The launcher beside a console script of the test's own."""
    folder.mkdir(exist_ok=True)
    shutil.copy(COMMAND, folder / "necropsy")
    (folder / "necropsy-python").write_text(script)
    (folder / "necropsy-python").chmod(0o755)
    return folder / "necropsy"


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_in_the_interpreters_own_start(name: str, tmp_path: Path) -> None:
    code = (
        f"import os, signal, sys; os.kill(os.getpid(), signal.{name}); os.execv({str(COMMAND) + '-python'!r}, sys.argv)"
    )
    program = installed(tmp_path, f"#!{sys.executable}\n{code}\n")
    done = subprocess.run([program, "run", "echo", "ran"], check=False, **SETTINGS)
    assert (done.returncode, done.stdout, done.stderr) == (-getattr(signal, name), b"", b"")


SHOW = f"""#!{sys.executable}
import json, os, sys
print(json.dumps([sys.argv, os.environ.get("{launcher.VARIABLE}"), os.getpid()]))
"""


def shown(*words: str | Path, **settings: Any) -> tuple[list[str], list[int]]:
    """The arguments of the script behind the launcher, and its record."""
    done = subprocess.run([*map(str, words)], check=True, **SETTINGS, **settings)
    arguments, text, pid = json.loads(done.stdout)
    record = list(map(int, text.split(",")))
    assert record[0] == pid
    return arguments, record[1:]


def test_the_script_is_found_beside_the_real_file(tmp_path: Path) -> None:
    program = installed(tmp_path / "bin", SHOW)
    (tmp_path / "other").mkdir()
    link = tmp_path / "other" / "link"
    link.symlink_to("../again")
    (tmp_path / "again").symlink_to(program)
    script = str(tmp_path / "bin" / "necropsy-python")
    for words, folder in (
        ([program], None),
        ([link], None),
        (["./link"], link.parent),
        (["../bin/necropsy"], link.parent),
    ):
        assert shown(*words, "a", "", "b c", cwd=folder) == ([script, "a", "", "b c"], [0, 1])
    path = f"{tmp_path / 'other'}:{os.environ['PATH']}"
    assert shown("sh", "-c", "link x", env={**os.environ, "PATH": path})[0] == [script, "x"]


NO_PROC = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]


@needs.MOUNT
def test_the_script_is_found_without_proc(tmp_path: Path) -> None:
    installed(tmp_path, SHOW)
    (tmp_path / "link").symlink_to("necropsy")
    (tmp_path / "again").symlink_to(tmp_path / "link")
    assert shown(*NO_PROC, tmp_path / "again", "x") == ([f"{tmp_path}/necropsy-python", "x"], [0, 1])
    assert shown(*NO_PROC, "./link", cwd=tmp_path) == (["./necropsy-python"], [0, 1])


def test_a_script_that_is_missing_is_one_line(tmp_path: Path) -> None:
    program = installed(tmp_path, SHOW)
    (tmp_path / "necropsy-python").unlink()
    done = subprocess.run([program, "run", "true"], check=False, **SETTINGS)
    expected = (
        f"necropsy: cannot start {tmp_path}/necropsy-python: it or its Python is not there; install necropsy again\n"
    )
    assert (done.returncode, done.stderr.decode()) == (125, expected)


def test_a_stack_limit_is_raised_only_where_it_is_too_small(tmp_path: Path) -> None:
    program = installed(tmp_path, SHOW)
    unlimited = "18446744073709551615"
    hard = subprocess.run(["sh", "-c", "ulimit -H -s"], check=True, **SETTINGS).stdout.decode().strip()
    hard = unlimited if hard == "unlimited" else str(int(hard) << 10)
    assert shown("sh", "-c", 'ulimit -S -s 64; exec "$@"', "sh", program)[1] == [0, 1, 64 << 10, int(hard)]
    assert shown("sh", "-c", 'ulimit -S -s 512; exec "$@"', "sh", program)[1] == [0, 1]


def test_it_is_named_necropsy() -> None:
    with subprocess.Popen([*RUN, "sleep", "30"], stdin=subprocess.DEVNULL) as front:
        comm = Path(f"/proc/{front.pid}/comm")
        until(
            lambda: comm.read_text() == "necropsy\n" and b"-python" in Path(f"/proc/{front.pid}/cmdline").read_bytes(),
            "it",
        )
        front.terminate()
        assert front.wait(30) == -signal.SIGTERM
