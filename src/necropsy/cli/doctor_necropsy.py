"""The lines of `necropsy doctor` that say whether necropsy itself works here, and what would help where it does not."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from necropsy import launcher, store
from necropsy.capture.linux.supervise import c_library, self_check
from necropsy.capture.linux.unwind.py_spy import find_py_spy

_ENOUGH = 32 << 20
_PATTERN = Path("/proc/sys/kernel/core_pattern")


def lines(variables: Mapping[str, str], tracing: str | None) -> list[str]:
    """One line for each part, the loop last. ``tracing``: why processes cannot be traced, from ``self_check``."""
    told = [
        _tracing(tracing),
        *_stacks(),
        _stderr(),
        *_launcher(),
        _reports(variables),
        *_core_pattern(),
        _loop(),
    ]
    return [f"Supervisor: {line}" for line in told]


def _tracing(why: str | None) -> str:
    if why is None:
        return "processes can be traced."
    how = (
        "a seccomp filter is in force: start the container with `docker run --cap-add=SYS_PTRACE`"
        if self_check.is_filtered()
        else "see `necropsy explain env-ptrace-restricted`"
    )
    return f"processes cannot be traced ({why}), so reports have no stacks; {how}."


def _stacks() -> Iterator[str]:
    install = f"{shlex.quote(sys.executable)} -m pip install"
    if find_spec("drgn") is None:
        yield f"drgn is missing, so native stacks have no source lines; where there is a wheel: {install} drgn"
    else:
        yield "drgn adds source lines to native stacks."
    if find_py_spy() is None:
        yield f"py-spy is missing, so some Python stacks cannot be read; where there is a wheel: {install} py-spy"
    else:
        yield "py-spy is there for Python stacks."


def _stderr() -> str:
    why = self_check.why_no_probe()
    if why is None:
        return "what a program writes to stderr is read along by a probe in the kernel."
    how = "run with 2>log.txt or --log tap"
    return f"stderr is only read back from a file, because the probe cannot be used ({why}); {how}."


def _launcher() -> Iterator[str]:
    if launcher.record() is None:
        yield (
            "the native launcher is not in use: it takes a C compiler when necropsy is installed, and "
            "`python -m necropsy` goes without it."
        )
    else:
        yield "the native launcher is in use."


def _reports(variables: Mapping[str, str]) -> str:
    folder, most = store.folder(variables), store.limit(variables)
    if folder is None:
        return "reports are not kept: there is no home folder; set NECROPSY_OUTPUT to a folder."
    if most == 0:
        return "reports are not kept, because of NECROPSY_KEEP=0."
    place = folder
    while not place.exists() and place.parent != place:
        place = place.parent
    if not os.access(place, os.W_OK | os.X_OK) or not place.is_dir():
        return f"reports cannot be written to {folder}; set NECROPSY_OUTPUT to another folder."
    kept = _kept(folder)
    room = shutil.disk_usage(place).free
    if room < _ENOUGH:
        how = "remove some with `necropsy prune`, or set NECROPSY_OUTPUT"
        return f"reports go to {folder}, where {room >> 20} MiB are free: {how}."
    return f"reports go to {folder}, which holds {kept} of at most {most}."


def _kept(folder: Path) -> int:
    try:
        return sum(1 for one in folder.iterdir() if one.suffix == store.SUFFIX and not one.name.startswith("."))
    except OSError:
        return 0


def _core_pattern() -> Iterator[str]:
    try:
        pattern = _PATTERN.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return
    if pattern.startswith("|"):
        taker = pattern[1:].split(" ")[0]
        how = "`coredumpctl dump`" if "systemd-coredump" in taker else f"see {taker}"
        yield f"core dumps of other crashes go to a program; to open one, write it to a file first ({how})."
    elif pattern:
        yield f"core dumps of other crashes are files named by `{pattern}`; `necropsy FILE` opens one."


def _loop() -> str:
    why = c_library.why_missing()
    if why is None:
        return "the C loop is in use."
    return (
        f"the Python loop is in use, because {why}.\n"
        "  Programs run the same under it, but many threads, processes or signals cost several times as much.\n"
        "  To get the C loop, install a C compiler (gcc or clang) and reinstall necropsy."
    )
