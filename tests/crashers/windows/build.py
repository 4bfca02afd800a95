"""Compile the crashers for Windows by MinGW: once, kept by the hash of what goes into them.

``programs()`` is a folder with:

- ``crash.exe VERB [NUMBER]`` and ``crash.dll``, which have all verbs of the C files here;
- ``missing/needs.exe``, whose helper.dll is not there; ``lacks/``, where it lacks the function; ``refuses/``, where its
  DllMain returns FALSE; ``damaged/``, where it is no DLL at all;
- ``delayed/needs.exe``, which loads helper.dll when it first calls it, and does not find it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

HERE = Path(__file__).parent
BUILD = HERE.parent / "build" / "windows"
GCC, GXX, DLLTOOL = (f"x86_64-w64-mingw32-{tool}" for tool in ("gcc", "g++", "dlltool"))
FLAGS = ["-O0", "-g", "-gdwarf-4", "-w"]
_COMMON = (
    *(
        "verbs.c",
        "pointers.c",
        "stacks.c",
        "smash.c",
        "fast_fails.c",
        "aborts.c",
        "arithmetic.c",
        "heaps.c",
        "loading.c",
        "files.c",
    ),
    *("threads.c", "exceptions.cc"),
)


def available() -> bool:
    """MinGW is installed."""
    return all(shutil.which(tool) for tool in (GCC, GXX, DLLTOOL))


@lru_cache(maxsize=1)
def programs() -> Path:
    """The folder of the compiled programs. Raises subprocess.CalledProcessError with the compiler's words on stderr."""
    sources = sorted(path for path in HERE.iterdir() if path.suffix in {".c", ".cc", ".h", ".py"})
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    made = BUILD / digest
    if not made.is_dir():
        unfinished = BUILD / f"{digest}.{os.getpid()}"
        unfinished.mkdir(parents=True, exist_ok=True)
        _compile(unfinished)
        try:
            unfinished.rename(made)
        except OSError:  # another process was first
            shutil.rmtree(unfinished)
    return made


def _run(*command: str | Path) -> None:
    subprocess.run([str(word) for word in command], check=True, timeout=600)


def _compile(folder: Path) -> None:
    objects = []
    for source in (*_COMMON, "main.c"):
        objects.append(folder / f"{source}.o")
        # The source's path is in the debug information: as it is written here, so that tests can name it.
        compiler, standard = (GXX, "-std=c++17") if source.endswith(".cc") else (GCC, "-std=gnu17")
        protector = ["-fstack-protector-all"] if source == "smash.c" else []
        _run(compiler, standard, *FLAGS, *protector, "-c", HERE / source, "-o", objects[-1])
    # libstdc++ names the function weakly, and an archive is not searched for that: vtables would hold null instead.
    linked = ["-static", "-fstack-protector", "-Wl,-u,__cxa_pure_virtual"]
    _run(GXX, *objects, *linked, "-o", folder / "crash.exe")
    _run(GXX, "-shared", *objects[:-1], *linked, "-o", folder / "crash.dll")
    for one in objects:
        one.unlink()
    _of_loading(folder)


def _of_loading(folder: Path) -> None:
    helper, whole = HERE / "helper.c", folder / "whole"
    for name in ("whole", "missing", "lacks", "refuses", "damaged", "delayed"):
        (folder / name).mkdir()
    _run(GCC, *FLAGS, "-shared", helper, "-o", whole / "helper.dll", f"-Wl,--out-implib,{whole / 'helper.a'}")
    _run(GCC, *FLAGS, HERE / "needs.c", whole / "helper.a", "-o", whole / "needs.exe")
    for name in ("missing", "lacks", "refuses", "damaged"):
        shutil.copy(whole / "needs.exe", folder / name)
    _run(GCC, *FLAGS, "-shared", "-DWITHOUT_HELP", helper, "-o", folder / "lacks" / "helper.dll")
    _run(GCC, *FLAGS, "-shared", "-DFIRST=FALSE", helper, "-o", folder / "refuses" / "helper.dll")
    (folder / "damaged" / "helper.dll").write_bytes(b"MZ" + bytes(4096))
    definition = folder / "delayed" / "helper.def"
    definition.write_text("LIBRARY helper.dll\nEXPORTS\n  help\n")
    library = folder / "delayed" / "helper.a"
    _run(DLLTOOL, "-d", definition, "-y", library)
    _run(GCC, *FLAGS, HERE / "needs.c", library, "-o", folder / "delayed" / "needs.exe")
