"""``necropsy explain`` of paths that are no ordinary text: devices, pipes, sockets, holes, files that grow."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

import needs
from necropsy.errors import NoInputError
from necropsy.explanation import files, inputs

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="devices, FIFOs and holes are those of Unix")

DEATH = b"Fatal Python error: Segmentation fault\n"


def said(
    *words: str, feed: bytes | None = None, stdin: int = subprocess.DEVNULL, keep: int = -1
) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the command; ``keep`` is a descriptor that it has too."""
    done = subprocess.run(
        [sys.executable, "-m", "necropsy", "explain", *words],
        input=feed,
        stdin=None if feed is not None else stdin,
        capture_output=True,
        check=False,
        pass_fds=(keep,) if keep >= 0 else (),
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom", "/dev/full"])
def test_a_device_without_an_end_is_refused_in_one_line(device: str) -> None:
    code, out, err = said(device)
    assert (code, out) == (66, "")
    assert err.startswith(f"necropsy: {device} is a device, which may never end")
    assert err.count("\n") == 1


@pytest.mark.parametrize("words", [("-",), (), ("/dev/stdin",)])
def test_so_it_is_as_standard_input(words: tuple[str, ...]) -> None:
    with Path("/dev/zero").open("rb") as zero:
        code, out, err = said(*words, stdin=zero.fileno())
    assert (code, out) == (66, "")
    assert "is a device, which may never end" in err


def test_the_empty_device_is_an_empty_text() -> None:
    code, out, _ = said("/dev/null")
    assert code == 0
    assert "Nothing found in /dev/null: it is empty." in out


@pytest.mark.parametrize("words", [("-",), (), ("/dev/stdin",)])
def test_a_pipe_is_read(words: tuple[str, ...]) -> None:
    code, out, _ = said(*words, feed=DEATH)
    assert code == 0
    assert "SIGSEGV" in out


def test_a_descriptor_is_read() -> None:
    reads, writes = os.pipe()
    try:
        os.write(writes, DEATH)
        os.close(writes)
        code, out, _ = said(f"/dev/fd/{reads}", keep=reads)
    finally:
        os.close(reads)
    assert code == 0
    assert "SIGSEGV" in out


def test_a_fifo_is_read(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    threading.Thread(target=fifo.write_bytes, args=(DEATH,), daemon=True).start()
    code, out, _ = said(str(fifo))
    assert code == 0
    assert "SIGSEGV" in out


def test_a_terminal_is_read() -> None:
    leader, terminal = os.openpty()
    try:
        os.write(leader, DEATH + b"\x04")  # Ctrl-D: the end of what is typed
        code, out, _ = said(os.ttyname(terminal), stdin=terminal)
    finally:
        os.close(leader)
        os.close(terminal)
    assert code == 0
    assert "SIGSEGV" in out


def test_a_socket_and_a_folder_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))
        with pytest.raises(NoInputError, match=f"^{path} is a socket$"):
            inputs.read([str(path)])
    with pytest.raises(NoInputError, match=f"^{tmp_path} is a folder$"):
        inputs.read([str(tmp_path)])


# Only Linux has such a file: macOS and the BSDs have no /proc.
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc here")
def test_a_file_of_proc_is_read_though_its_size_is_zero() -> None:
    assert inputs.read(["/proc/self/status"]).digests[0].bytes > 0


def test_a_file_that_grows_is_read_up_to_the_size_that_it_had(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"old\n" * 10)
    stream, size = files.opened(path)
    with stream:
        with path.open("ab") as more:
            more.write(b"new\n" * 100_000)
        assert stream.read() == b"old\n" * 10
    assert size == 40


@needs.SPARSE_FILES
def test_a_hole_of_gigabytes_is_passed_over(tmp_path: Path) -> None:
    """It must not be read: that alone would take long."""
    path = tmp_path / "log"
    path.write_bytes(b"begin\n")
    os.truncate(path, 4 << 30)
    with path.open("ab") as file:
        file.write(b"\n" + DEATH)
    stream, size = files.opened(path)
    with stream:
        read = stream.read()
    assert size == path.stat().st_size
    assert read.startswith(b"begin\n\0")
    assert read.endswith(b"\0\n" + DEATH)
    assert len(read) < 3 << 20
    assert inputs.read([str(path)]).digests[0].messages


def test_few_zeros_stay_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "log"
    text = b"a\0\0b" * 70_000 + bytes(1 << 17) + b"c\n"
    path.write_bytes(text)
    stream, _ = files.opened(path)
    with stream:
        assert stream.read() == text


def test_of_an_archive_every_byte_is_read(tmp_path: Path) -> None:
    path = tmp_path / "logs.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("a.txt", bytes(3 << 20) + b"\n" + DEATH)
    stream, _ = files.opened(path)
    with stream:
        assert stream.read() == path.read_bytes()
    digests = inputs.read([str(path)]).digests
    assert any(digest.messages for digest in digests)


@pytest.mark.parametrize("name", ["logs_29384756.zip", "train.log", "x.xz", "core.dmp"])
def test_what_looks_like_a_file_is_missed_as_one(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NoInputError, match=f"^there is no file {name}$"):
        inputs.read([name])
