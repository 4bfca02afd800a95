"""What some tests need of the machine they run on, asked before they run: each name here is a mark, or makes one."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest


def command(*names: str) -> pytest.MarkDecorator:
    """Each of these commands is installed."""
    missing = [name for name in names if shutil.which(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


def package(name: str) -> pytest.MarkDecorator:
    """This package can be imported; it is not imported yet."""
    return pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=f"{name} is not installed")


def sanitizer(kind: str, compiler: str = "gcc") -> pytest.MarkDecorator:
    """``<compiler> -fsanitize=<kind>`` builds programs that run here."""
    works = _sanitizer_works(kind, compiler)
    return pytest.mark.skipif(not works, reason=f"{compiler} -fsanitize={kind} does not work here")


def namespace(*options: str, then: str = "true") -> pytest.MarkDecorator:
    """``unshare <options>`` is allowed, and so is the shell command ``then`` inside it."""
    works = _runs(("unshare", *options, "sh", "-c", then))
    return pytest.mark.skipif(not works, reason=f"not allowed here: unshare {' '.join(options)}, then: {then}")


@functools.cache
def _sanitizer_works(kind: str, compiler: str) -> bool:
    if shutil.which(compiler) is None:
        return False
    with tempfile.TemporaryDirectory(prefix="necropsy-sanitizer-") as folder:
        source, program = Path(folder, "empty.c"), str(Path(folder, "empty"))
        source.write_text("int main(void) { return 0; }\n")
        built = _runs((compiler, f"-fsanitize={kind}", "-pthread", str(source), "-o", program))
        return built and _runs(("setarch", "-R", program))


@functools.cache
def _runs(words: Sequence[str]) -> bool:
    try:
        return subprocess.run(words, capture_output=True, check=False, timeout=60).returncode == 0
    except OSError:
        return False


def _has_holes() -> bool:
    """The file system of the temporary folder stores no blocks for what was never written (HFS+ and FAT do)."""
    with tempfile.TemporaryFile() as file:
        file.truncate(1 << 20)
        return getattr(os.fstat(file.fileno()), "st_blocks", 0) * 512 < 1 << 20


SPARSE_FILES = pytest.mark.skipif(not _has_holes(), reason="the temporary folder's file system has no sparse files")
PYTHON_HEADERS = pytest.mark.skipif(
    not Path(sysconfig.get_paths()["include"], "Python.h").exists(), reason="Python's headers are not installed"
)
MOUNT = namespace("--mount", then="mount -t tmpfs none /mnt")
"""A file system can be mounted, in a namespace of its own: it takes root, and a container that allows it."""
