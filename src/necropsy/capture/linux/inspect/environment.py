"""Where the process lived: system, interpreter, limits, and the variables that change how native code behaves."""

from __future__ import annotations

import os
import re
from pathlib import Path

from necropsy.capture.linux.inspect import library_versions
from necropsy.capture.linux.inspect.modules import MappedFiles
from necropsy.capture.process.memory import Memory
from necropsy.capture.process.owning_package import package_of
from necropsy.model import Environment
from necropsy.secrets.names import is_harmless

_LIMITS = {
    "Max stack size": "RLIMIT_STACK",
    "Max address space": "RLIMIT_AS",
    "Max data size": "RLIMIT_DATA",
    "Max core file size": "RLIMIT_CORE",
    "Max cpu time": "RLIMIT_CPU",
    "Max file size": "RLIMIT_FSIZE",
    "Max processes": "RLIMIT_NPROC",
    "Max open files": "RLIMIT_NOFILE",
    "Max locked memory": "RLIMIT_MEMLOCK",
    "Max resident set": "RLIMIT_RSS",
}


def read(pid: int, memory: Memory, files: MappedFiles) -> Environment:
    """The environment of a process; what cannot be read is None."""
    system = os.uname()
    return Environment(
        platform=f"{system.sysname} {system.release} {system.machine}",
        python=library_versions.python_version(memory, files),
        executable=_link(pid, "exe"),
        libc=library_versions.libc_version(files),
        packages=_packages(files),
        variables=variables(pid),
        limits=limits(pid),
        cpu=_cpu(),
        working_directory=_link(pid, "cwd"),
    )


def _link(pid: int, name: str) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/{name}")  # noqa: PTH115 - a name that may lead nowhere
    except OSError:
        return None


def _packages(files: MappedFiles) -> dict[str, str]:
    found = (package_of(file.path) for file in files.files)
    return dict(sorted({one for one in found if one is not None}))


def variables(pid: int) -> dict[str, str] | None:
    """The variables that the process started with and that matter to native code; nothing else is kept."""
    try:
        data = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    pairs = (entry.partition("=") for entry in data.decode("utf-8", "backslashreplace").split("\0"))
    return {name: value for name, _, value in sorted(pairs) if is_harmless(name)}


def limits(pid: int) -> dict[str, int] | None:
    """The soft limits by name, in bytes or counts as the kernel has them; -1 is unlimited."""
    try:
        text = Path(f"/proc/{pid}/limits").read_text()
    except OSError:
        return None
    found: dict[str, int] = {}
    for line in text.splitlines():
        name = next((one for one in _LIMITS if line.startswith(one + " ")), None)
        if name is None:
            continue
        soft = line[len(name) :].split()[0]
        found[_LIMITS[name]] = -1 if soft == "unlimited" else int(soft)
    return found


def _cpu() -> str | None:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return None
    match = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    return match[1].strip() if match else None
