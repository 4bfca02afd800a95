"""A shared library was not found.

What happened
-------------
The dynamic linker was asked to load a library and did not find its file: one that is imported, or, more often, one
that *it* needs. The program ended with that exception.

How to be sure
--------------
``libX.so.N: cannot open shared object file`` is the text of the exception that ended the program, or the linker
itself ended it with exit code 127. The name is exactly what is missing. The number after ``.so`` matters:
libcudart.so.11.0 cannot replace libcudart.so.12. On Windows, ``DLL load failed`` names the importing module, not what
is missing. ``necropsy run`` sees which library was mapped without what it imports, and names that. The exit code
0xC0000135 (-1073741515) means that a DLL was not found at the start. 0xC06D007E (-1066598274) means one that was not
found when it was first used. 0xC000007B (-1073741701) means a 32-bit file in a 64-bit process, or a damaged one. For
a DLL that is loaded on first use, the exception record holds its name, and a minidump keeps that.

How to fix it now
-----------------
``ldd FILE | grep 'not found'`` shows all that is missing at once (Windows: ``dumpbin /dependents``, macOS: ``otool
-L``). Install the package that has it: ``libGL.so.1`` is ``apt-get install libgl1`` (or ``opencv-python-headless``),
``libgomp.so.1`` is ``libgomp1``, ``vcruntime140_1.dll`` is Microsoft's Visual C++ Redistributable, ``libomp.dylib``
is ``brew install libomp``. Or name its folder in ``LD_LIBRARY_PATH`` before Python starts. Link your own ops with
``-Wl,-rpath,...`` (``tf.sysconfig.get_link_flags()``).

How to prevent it
-----------------
Pin the versions that belong together; test the import in a clean container.

What it is often mistaken for
-----------------------------
A missing import: the imported file exists, but something that it needs does not. A warning about an optional library
that the program survives.

Sources
-------
- https://man7.org/linux/man-pages/man8/ld.so.8.html
- https://www.tensorflow.org/install/pip
"""

from __future__ import annotations

import re

from necropsy.data import table
from necropsy.model import Confidence, Crash, Fix, Message, Possibility
from necropsy.predicates import messages, quote
from necropsy.rule import Finding, Rule, Tried
from necropsy.rules import compatibility, failed_loads, quoting
from necropsy.rules.exit_causes import of_load_error
from necropsy.rules.failed_loads import is_failed_load
from necropsy.rules.loading import NO_PAGE_FILE, ended_by, windows_error
from necropsy.rules.python import exit_evidence, last_traceback, python_culprit
from necropsy.rules.windows_loader import delayed_library, refused_library

_ORDER: tuple[Confidence, ...] = ("certain", "likely", "possible")
_OF_MKL = 2
"""The exit code with which MKL ends a program."""


def _match(crash: Crash) -> Finding | None:
    if (delayed := delayed_library(crash)) is not None:
        return delayed
    found = messages(crash, "missing-library", "bad-library-file", "mkl-library")
    graded = [
        (one, grade)
        for one in found
        if windows_error(one) != NO_PAGE_FILE
        and not _is_of_a_symbol(crash, one)
        and not _is_of_a_program(crash, one)
        and (grade := _grade(crash, one)) is not None
    ]
    if not graded:
        return None if any(not is_failed_load(one) for one in found) else refused_library(crash)
    # The first of the surest: a wrapper's complaint comes after the linker's. What the loader itself says of the start,
    # or was seen to do, counts before what it tells an import.
    message, confidence = min(
        graded, key=lambda one: (_ORDER.index(one[1]), "loader" not in one[0].fields, not is_failed_load(one[0]))
    )
    if is_failed_load(message):
        evidence = (
            quote(message, "a library was mapped, and not what it imports"),
            *failed_loads.evidence(crash, message),
        )
    else:
        evidence = (quote(message, "the dynamic linker's message"),)
    return Finding(
        evidence=(*evidence, *exit_evidence(crash)),
        summary=_summary(message),
        confidence=confidence,
        culprit=python_culprit(crash),
        fixes=_fixes(message),
        possible=_possible(message),
    )


def _possible(message: Message) -> tuple[Possibility, ...]:
    if is_failed_load(message) or compatibility.package_of(message.fields.get("library", "")):
        return ()
    return of_load_error(windows_error(message) or 0)


def _is_of_a_symbol(crash: Crash, message: Message) -> bool:
    """All files exist but one lacks a function: another rule reports it."""
    seen = failed_loads.seen_of(crash, message)
    return seen is not None and seen.kind == "undefined-symbol"


def _is_of_a_program(crash: Crash, message: Message) -> bool:
    """A program could not be started, for which Windows has the same message as for a library."""
    fields = traceback.fields if (traceback := last_traceback(crash)) is not None else {}
    return fields.get("function") == "_execute_child" and fields.get("text", "") in message.text


def _grade(crash: Crash, message: Message) -> Confidence | None:
    if message.kind != "mkl-library":
        return ended_by(crash, message.text)
    end, traceback = crash.exit, last_traceback(crash)
    said = list(crash.messages or ())
    # MKL ends the program at once: an exception that came after it is another story.
    if crash.fault is not None or (traceback is not None and said.index(traceback) > said.index(message)):
        return None
    if end is None:
        return "possible"
    return "certain" if end.kind == "exited" and end.code == _OF_MKL else "likely" if end.code else None


_IS_FILE = re.compile(r"\.(?:so|dll|dylib|pyd)\b", re.IGNORECASE)


def _summary(message: Message) -> str:
    library, text = message.fields.get("library"), message.fields.get("text", "").strip().rstrip(".")
    if message.kind == "mkl-library":
        return f"Intel's MKL could not load its own part `{library}`, and ended the program."
    if is_failed_load(message):
        return failed_loads.summary(message)
    error = windows_error(message)
    if error is not None and error not in {0, 126}:
        return f"{_of(library)} could not be loaded: {_means(error)}."
    if message.kind == "bad-library-file":
        return f"{_of(library)} could not be loaded: {text}."
    if library and _IS_FILE.search(library):
        what = f"`{library}`"
        if "dependencies" in message.text or error is not None:
            return f"The library {what}, or one that it needs, was not found."
        return f"The shared library {what} is needed and was not found."
    if _BY_PATH.search(message.text):
        return f"The library that the program loads, or one that it needs, was not found: {text}."
    return f"A library that {library or 'an extension'} needs was not found: {text or 'Windows does not say which'}."


def _of(library: str | None) -> str:
    return f"The library `{library}`" if library else "A library of the program"


def _means(error: int) -> str:
    if error < 0 or error > 0xFFFF:
        return f"its start ended with the status 0x{error & 0xFFFFFFFF:08X}"
    return _REASONS.get(error) or f"Windows' error {error} ({_name(error)})"


def _name(error: int) -> str:
    codes = table("win32.json")["groups"]["Win32 error"]["codes"]
    return next((name for name, row in codes.items() if row["value"] == error), "it has no name")


_REASONS = {
    5: "access was denied (rights, a virus scanner, or a file that is in use)",
    127: "a library that it needs was found, but lacks the function (Windows error 127): it is another version",
    193: "it is not a library for this Python (Windows error 193): 32 and 64 bits are mixed, or the file is damaged",
    1114: "its own start failed (Windows' error 1114): mostly an old VC++ runtime, two OpenMP runtimes or a processor without AVX",
    4551: "a policy of Windows (Smart App Control) does not let it run",
}
_DENIED, _POLICY = 5, 4551
_BY_PATH = re.compile(r"Error 126\](?!.*Error loading)|Could not find module '")
_REDISTRIBUTABLE = Fix(
    text="Install Microsoft's Visual C++ Redistributable for 2015 to 2022 (x64): it is what is missing or too old most often.",
    command="winget install Microsoft.VCRedist.2015+.x64",
)


def _fixes(message: Message) -> tuple[Fix, ...]:
    library, loader = (message.fields.get("library") or "").lower(), message.fields.get("loader")
    if message.kind == "mkl-library":
        return (
            Fix(
                text="Reinstall MKL and NumPy from one source.",
                command="conda install -c conda-forge --force-reinstall mkl numpy",
            ),
            Fix(
                text="Or use a NumPy without MKL.",
                command="conda install nomkl numpy; pip install --force-reinstall numpy",
            ),
        )
    on_windows = loader == "windows" or library.endswith((".dll", ".pyd")) or windows_error(message) is not None
    if on_windows or "DLL load failed" in message.text:
        return _on_windows(message, library)
    if loader == "dyld" or library.endswith(".dylib") or "dlopen(" in message.text or "mach-o" in message.text:
        return _on_macos(message, library)
    return _on_linux(message, library)


def _on_windows(message: Message, library: str) -> tuple[Fix, ...]:
    row = compatibility.package_of(library) or {}
    see = Fix(text="See all that is missing at once.", command="dumpbin /dependents FILE.pyd")
    if is_failed_load(message) and (not row.get("why") or failed_loads.knows_better(message)):
        return failed_loads.fixes(message)
    if row.get("why"):
        return (_REDISTRIBUTABLE if "Redistributable" in row["why"] else Fix(text=row["why"]), see)
    error = windows_error(message)
    if error == 193:
        return (
            Fix(
                text="Use a library that is built for Windows and for as many bits as this Python has, which the command prints: "
                "the package for it, or a 64-bit Python.",
                command='python -c "import platform; print(platform.architecture(), platform.machine())"',
            ),
            see,
        )
    if error == 127:
        return (
            Fix(
                text="Find the copies of the libraries that it needs, and keep those of one version: the first on PATH wins.",
                command="where python*.dll libiomp5md.dll cudart64*.dll",
            ),
            Fix(text="Install the package in a fresh environment.", command="python -m venv fresh"),
        )
    if error == _POLICY:
        return failed_loads.advice(
            "Smart App Control or a policy of your organisation blocks the file: allow it there, or install a signed build.",
            "start windowsdefender://SmartAppControl",
        )
    if error == _DENIED:
        return failed_loads.advice(
            "Check the file's permissions, and whether a virus scanner or another process holds it.",
            "icacls FILE.pyd",
        )
    if _BY_PATH.search(message.text):
        return (
            Fix(
                text="Look whether the file is there under that name: ctypes takes a name as it is, and searches no folder "
                "of PATH for what it needs.",
                command="dir FILE.dll& dumpbin /dependents FILE.dll",
            ),
            Fix(text='Name the folder of what it needs, before the load: os.add_dll_directory(r"FOLDER").'),
            _REDISTRIBUTABLE,
        )
    if error == 1114 or "torch" in library or "tensorflow" in message.text:
        return (
            _REDISTRIBUTABLE,
            Fix(text="Install the package in a fresh environment.", command="python -m venv fresh"),
        )
    return (
        _REDISTRIBUTABLE,
        Fix(
            text="Install the package that holds it, or put its folder on PATH; Python from 3.8 on asks for "
            "os.add_dll_directory() in the program where an extension needs it.",
        ),
        see,
    )


def _on_macos(message: Message, library: str) -> tuple[Fix, ...]:
    row = compatibility.package_of(library) or {}
    see = Fix(text="See what it needs and where it looks.", command="otool -L FILE.so; file $(which python)")
    if "architecture" in message.text:
        return (
            Fix(
                text="Install the library for the processor that this Python is built for (arm64 or x86_64), or reinstall the package that needs it.",
                command="pip install --force-reinstall --no-cache-dir PACKAGE",
            ),
            see,
        )
    name = library.rsplit("/", 1)[-1]
    if "libomp" in name or "libiomp" in name:
        return (Fix(text="Install LLVM's OpenMP.", command="brew install libomp"), see)
    if row.get("conda"):
        return (
            Fix(
                text=f"Install the package that holds `{name}`.", command=f"conda install -c conda-forge {row['conda']}"
            ),
            see,
        )
    return (
        Fix(
            text="Install the library for the processor that this Python is built for (arm64 or x86_64), or reinstall the package that needs it."
        ),
        see,
    )


def _on_linux(message: Message, library: str) -> tuple[Fix, ...]:
    see = Fix(text="See all that is missing at once.", command="ldd FILE.so | grep 'not found'")
    if message.kind == "bad-library-file":
        return _damaged(message)
    path = message.fields.get("library") or ""
    if "/" in path and "No such file" in message.text:
        return _no_such_path(path)
    row = compatibility.package_of(library)
    name = library.rsplit("/", 1)[-1]
    if row is None:
        return (
            Fix(
                text="Install the package that holds it, or name its folder before Python starts.",
                command="export LD_LIBRARY_PATH=/folder/of/it:$LD_LIBRARY_PATH",
            ),
            see,
        )
    found: list[Fix] = []
    if "apt" in row:
        fedora = f"; dnf install {row['dnf']}" if "dnf" in row else ""
        found.append(
            Fix(
                text=f"Install the system's package that holds `{name}`.",
                command=f"apt-get install {row['apt']}{fedora}",
            )
        )
    if "pip" in row or "conda" in row:
        commands = [f"pip install {row['pip']}"] if "pip" in row else []
        commands += [f"conda install -c conda-forge {row['conda']}"] if "conda" in row else []
        found.append(Fix(text=row.get("why") or "Or, without administrator rights:", command="; ".join(commands)))
    elif "why" in row:
        found.append(Fix(text=row["why"]))
    return (*found, see)


def _no_such_path(path: str) -> tuple[Fix, ...]:
    """The linker does not search folders for a name with a slash, so this file itself is missing."""
    relative = not path.startswith("/")
    how = "it is relative to the folder that the program was started in" if relative else "it is taken as it is"
    return (
        Fix(
            text=f"The file `{path}` does not exist: {how}, and LD_LIBRARY_PATH is not searched for a name with a slash. Build or copy it there, or correct the path.",
            command=f"ls -l {quoting.posix(path, 'PATH')}",
        ),
        Fix(
            text="In Python, make the path from the place of the module, so that it holds wherever the program is started.",
            command="pathlib.Path(__file__).with_name('NAME.so')",
        ),
    )


def _damaged(message: Message) -> tuple[Fix, ...]:
    text = message.fields.get("text", "")
    if "executable stack" in text:
        return (
            Fix(
                text="The library asks for an executable stack, which this system refuses: remove the flag, or use a newer version of the package.",
                command="patchelf --clear-execstack FILE.so",
            ),
            Fix(
                text="As a workaround, allow it (glibc 2.41 and later).",
                command="GLIBC_TUNABLES=glibc.rtld.execstack=2 python ...",
            ),
        )
    if "failed to map segment" in text:
        return failed_loads.advice(
            "Its folder is mounted without the right to execute (often /tmp): use another folder for temporary files and environments.",
            "mount | grep noexec; TMPDIR=$HOME/tmp python ...",
        )
    if "wrong ELF class" in text:
        return failed_loads.advice(
            "Use the library that was built for 64 bits, as this Python is.",
            "file FILE.so; python -c 'import struct; print(8 * struct.calcsize(\"P\"))'",
        )
    return failed_loads.advice(
        "The file is damaged or not made for this system: reinstall its package without pip's cached copy (a Git LFS file may be only a pointer).",
        "file FILE.so; pip install --force-reinstall --no-cache-dir PACKAGE",
    )


RULE = Rule(
    _match,
    beats=("python-exception", "exit-status-only", "abort", "killed-by-signal"),
    tried=Tried(
        advice="Install the package that holds the library, or name its folder before Python starts.",
        result="crash gone",
        how=("The printed ``export LD_LIBRARY_PATH=...`` with the folder of the library; the import then worked."),
        test="tests/rules/test_advice.py::test_missing_library",
    ),
    hit="""
        exit 1
        log Traceback (most recent call last):
        log   File "/home/u/train.py", line 1, in <module>
        log ImportError: libGL.so.1: cannot open shared object file: No such file or directory
    """,
    miss="""
        exit 1
        log W tensorflow/stream_executor/dso_loader.cc:64] Could not load dynamic library 'libcudart.so.11.0'; dlerror: libcudart.so.11.0: cannot open shared object file: No such file or directory
        log Traceback (most recent call last):
        log   File "/home/u/train.py", line 9, in <module>
        log ValueError: no data
    """,
)
