"""Set-user-ID and file capabilities under an ordinary user: lost, and told in one line; else nothing is said."""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from necropsy.capture.linux.supervise import lost_privileges

USER = 65534
PRIVATE = "set-user-ID rights (user root)"


def as_user(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join(one for one in sys.path if one)
    environment = {**os.environ, "NECROPSY_OUTPUT": str(folder / "reports"), "HOME": str(folder), "PYTHONPATH": paths}
    return subprocess.run(
        words,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        cwd="/",
        user=USER,
        group=USER,
        extra_groups=[],
    )


def interpreter_for_all() -> str | None:
    """A Python that the ordinary user may run, and that runs necropsy; root's own often lies in root's folder."""
    for one in (sys.executable, "/usr/bin/python3"):
        with contextlib.suppress(OSError):
            if as_user([one, "-c", "import necropsy.cli"], Path("/tmp")).returncode == 0:
                return one
    return None


PYTHON = interpreter_for_all() if os.geteuid() == 0 else None
pytestmark = pytest.mark.skipif(PYTHON is None, reason="it takes root, and a Python that other users can run")


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that every user gets to."""
    made = Path(tempfile.mkdtemp(prefix="necropsy-privileges-"))
    made.chmod(0o777)
    if os.statvfs(made).f_flag & os.ST_NOSUID:
        pytest.skip("set-user-ID programs do not work in the temporary folder")
    yield made
    shutil.rmtree(made)


def program(folder: Path, mode: int, capabilities: int = 0) -> str:
    """``id``, with these rights."""
    made = folder / "id"
    shutil.copy("/usr/bin/id", made)
    made.chmod(mode)
    if capabilities:
        data = struct.pack("<5I", 0x02000001, capabilities, 0, 0, 0)
        try:
            os.setxattr(made, "security.capability", data)
        except OSError as error:
            pytest.skip(f"no capabilities of files here: {error}")
    return str(made)


def under(words: list[str]) -> list[str]:
    return [str(PYTHON), "-m", "necropsy", "run", "--log", "off", "--", *words]


def test_set_user_id_is_told(folder: Path) -> None:
    path = program(folder, 0o4755)
    assert as_user([path, "-u"], folder).stdout == "0\n"
    done = as_user(under([path, "-u"]), folder)
    assert (done.returncode, done.stdout) == (0, f"{USER}\n")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"necropsy: {path} runs without its {PRIVATE}")
    assert "without necropsy" in line


def test_it_is_told_once_for_each_program(folder: Path) -> None:
    path = program(folder, 0o4755)
    done = as_user(under(["sh", "-c", f"{path} -u; {path} -u; exit 3"]), folder)
    assert (done.returncode, done.stdout) == (3, f"{USER}\n{USER}\n")
    assert done.stderr.count(PRIVATE) == 1


def test_a_program_that_cannot_be_read(folder: Path) -> None:
    """As sudo is where it has the mode 4111."""
    path = program(folder, 0o4711)
    done = as_user(under([path, "-u"]), folder)
    assert done.stdout == f"{USER}\n"
    assert PRIVATE in done.stderr


def test_set_group_id(folder: Path) -> None:
    path = program(folder, 0o2755)
    assert as_user([path, "-g"], folder).stdout == "0\n"
    done = as_user(under([path, "-g"]), folder)
    assert done.stdout == f"{USER}\n"
    assert "set-group-ID rights (group root)" in done.stderr


def test_capabilities(folder: Path) -> None:
    path = program(folder, 0o755, 1 << 13 | 1 << 6)
    done = as_user(under([path, "-u"]), folder)
    assert done.stdout == f"{USER}\n"
    assert "capabilities (cap_setgid, cap_net_raw)" in done.stderr


@pytest.mark.parametrize("mode", [0o755, 0o1755, 0o2745])
def test_nothing_is_said_where_nothing_is_lost(folder: Path, mode: int) -> None:
    done = as_user(under([program(folder, mode), "-u"]), folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{USER}\n", "")


def test_nothing_is_said_to_root(folder: Path) -> None:
    path = program(folder, 0o6755, 1 << 13)
    done = subprocess.run(
        [sys.executable, *under([path, "-u"])[1:]], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


def test_what_is_lost_without_us_is_not_told(folder: Path) -> None:
    """No new privileges (prctl(2)): the program has no more without a tracer."""
    path = program(folder, 0o4755)
    done = as_user(["setpriv", "--no-new-privs", *under([path, "-u"])], folder)
    assert (done.stdout, done.stderr) == (f"{USER}\n", "")


def test_capabilities_are_read_where_python_does_not_offer_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with musl."""
    monkeypatch.delattr(os, "getxattr")
    assert lost_privileges._permitted(program(folder, 0o755)) == 0
    assert lost_privileges._permitted(program(folder, 0o755, 1 << 13)) == 1 << 13
    with pytest.raises(FileNotFoundError):
        lost_privileges._permitted(str(folder / "none"))
