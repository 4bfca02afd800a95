"""Have Windows keep a dump of each crash: the registry values that Windows Error Reporting asks for.

Source: Microsoft Learn, *Collecting User-Mode Dumps* (``LocalDumps``). They are the machine's, so that writing them
takes an administrator; without them Windows keeps nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from necropsy.errors import NecropsyError, RegistryError

KEY = r"HKLM\SOFTWARE\Microsoft\Windows\Windows Error Reporting\LocalDumps"
FULL = 2
"""``DumpType``: 1 has the stacks only, 2 all memory, in which the objects of Python lie too."""
COUNT = 10
"""The default of Windows: an eleventh dump takes the place of the oldest."""


@dataclass(frozen=True)
class Setting:
    """One value below ``LocalDumps`` of the program."""

    name: str
    kind: str
    data: str


def default_folder() -> str:
    """Where Windows itself would put them, for the user that asks."""
    local = os.environ.get("LOCALAPPDATA")
    return rf"{local}\CrashDumps" if local else r"%LOCALAPPDATA%\CrashDumps"


def commands(program: str, folder: str) -> tuple[tuple[str, ...], ...]:
    """What ``reg`` is to be told so that each crash of ``program`` leaves a dump in ``folder``."""
    settings = (
        Setting("DumpFolder", "REG_EXPAND_SZ", folder),
        Setting("DumpCount", "REG_DWORD", str(COUNT)),
        Setting("DumpType", "REG_DWORD", str(FULL)),
    )
    key = rf"{KEY}\{program}"
    # Windows Error Reporting is a 64-bit program, whatever this Python is.
    return tuple(
        ("reg", "add", key, "/v", one.name, "/t", one.kind, "/d", one.data, "/f", "/reg:64") for one in settings
    )


def undo(program: str) -> tuple[str, ...]:
    """What takes it all back."""
    return ("reg", "delete", rf"{KEY}\{program}", "/f", "/reg:64")


def line(command: Sequence[str]) -> str:
    """The command as it is typed."""
    return subprocess.list2cmdline(command)


def check_system() -> None:
    """Raise ``NecropsyError`` if this is not Windows."""
    if sys.platform != "win32":
        raise NecropsyError("--enable-dumps is for Windows only; here `necropsy run` needs no dumps at all")


def write(program: str, folder: str) -> None:
    """Change the registry; raises ``RegistryError`` (refused, perhaps half-way), or ``NecropsyError`` (not Windows)."""
    check_system()
    for command in commands(program, folder):
        try:
            done = subprocess.run(command, capture_output=True, timeout=60, check=False)
        except (OSError, subprocess.SubprocessError) as error:
            raise RegistryError(f"`{line(command)}` did not run: {error}") from None
        if done.returncode:
            said = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
            why = said[0] if said else f"it ended with {done.returncode}"
            raise RegistryError(f"Windows did not let the registry be changed: {why}")
