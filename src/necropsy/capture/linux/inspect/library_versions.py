"""Versions of what is mapped, and what the files of the libraries at fault say.

Python packages have metadata, system libraries names or their own words. The files are read for the rules on
environments: only a few, for each takes its time.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from necropsy.capture.linux.inspect.modules import MappedFile, MappedFiles
from necropsy.capture.process.memory import Memory
from necropsy.capture.process.owning_package import package_of
from necropsy.errors import InputError
from necropsy.formats.cpu_features import processor_flags
from necropsy.formats.elf_dynamic import dynamic, end_of_segments
from necropsy.model import Crash, Library, Module, Processor

_FRAMES = 16
_FILES = 6
_LARGEST = 16 << 20
"""Bytes of a library that is searched; larger ones are those of frameworks, of which tables tell."""
_VERSIONED = re.compile(r"(?P<stem>lib[\w+-]+?)\.so\.[\d.]+")


def added(crash: Crash, files: MappedFiles) -> Crash:
    """The crash with what is known of the libraries that its thread died in, and of other versions of these."""
    thread, known = crash.crashed_thread, crash.environment
    refused = crash.fault is not None and crash.fault.signal == "SIGILL"
    # The processor is named where this is the machine that it died on.
    if refused and known is not None and known.cpu is not None and (flags := processor_flags()) is not None:
        processor = Processor(name=known.cpu, flags=tuple(sorted(flags)), told_by="/proc/cpuinfo")
        known = msgspec.structs.replace(known, processor=processor)
        crash = msgspec.structs.replace(crash, environment=known)
    if thread is None or known is None or not thread.frames:
        return crash
    numpy = any((package_of(one.path) or ("",))[0] == "numpy" for one in files.files)
    addresses = [int(frame.address) for frame in thread.frames[:_FRAMES] if frame.address is not None]
    near = dict.fromkeys(one.path for address in addresses if (one := files.at(address)) is not None)
    stems = {match["stem"] for path in near if (match := _VERSIONED.fullmatch(path.rsplit("/", 1)[-1]))}
    wanted = [one for one in files.files if one.path in near]
    wanted += [one for one in files.files if one.path not in near and _stem(one) in stems]
    found = tuple(_facts(wanted[:_FILES], numpy=numpy, levels=refused))
    return msgspec.structs.replace(crash, environment=msgspec.structs.replace(known, libraries=found or None))


def _stem(file: MappedFile) -> str | None:
    match = _VERSIONED.fullmatch(file.name)
    return match["stem"] if match is not None else None


def _facts(files: list[MappedFile], *, numpy: bool, levels: bool) -> Iterator[Library]:
    for file in files:
        elf = file.elf if not file.replaced else None
        package = package_of(file.path)
        if elf is None:
            continue
        try:
            read = dynamic(elf) if levels or _stem(file) is not None else None
        except InputError:
            continue
        size = end_of_segments(elf)
        generation = None
        if numpy and package is not None and package[0] != "numpy" and size <= _LARGEST:
            from necropsy.formats.op_abi import NUMPY_ONE, NUMPY_TWO

            generation = 2 if elf.find(NUMPY_TWO, 0, size) >= 0 else 1 if elf.find(NUMPY_ONE, 0, size) >= 0 else None
        if read is not None or generation is not None:
            defines = read.defines if read is not None else None
            level = read.isa_level if read is not None else None
            yield Library(path=file.path, defines=defines, numpy=generation, isa_level=level)


_NUMBERED = re.compile(
    r"^(?P<name>lib(?:stdc\+\+|cud\w+|cublas\w*|cufft\w*|cusolver\w*|cusparse\w*|nccl|nvinfer\w*|gomp|iomp5|omp|tbb"
    r"|protobuf\w*|nvrtc[\w-]*|nvidia-\w+|cuda))(?:-[0-9a-f]{8,})?\.so\.(?P<version>\d+(?:\.\d+)*)$"
)
_GLIBC = re.compile(rb"GNU C Library [^\n\0]*release version (\d+\.\d+)")
_MUSL = re.compile(rb"\0(1\.\d+\.\d+)\0")


def version_of(file: MappedFile) -> str | None:
    """The version of one mapped file: its package's, or the number in its name."""
    if file.replaced:
        return None
    from necropsy.capture.process.owning_package import package_of  # a table that a version of Python does not take

    package = package_of(file.path)
    if package is not None:
        return package[1]
    match = _NUMBERED.match(_file_name(file))
    return match["version"] if match else None


def module_of(file: MappedFile) -> Module:
    """The mapped file with its version and its package."""
    from necropsy.capture.process.owning_package import package_of

    package = package_of(file.path) if not file.replaced else None
    return file.as_noun(version_of(file), package[0] if package is not None else None)


def _file_name(file: MappedFile) -> str:
    """Its name with the whole version, where the one that it was found by is a link (in a core it may be)."""
    return Path(os.path.realpath(file.path)).name if file.name.startswith("lib") else file.name


def versions(files: MappedFiles) -> dict[str, str]:
    """Name to version of everything mapped that tells one."""
    from necropsy.capture.process.owning_package import package_of

    found: dict[str, str] = {}
    for file in files.files:
        if file.replaced:
            continue
        package = package_of(file.path)
        match = None if package else _NUMBERED.match(_file_name(file))
        if package is not None:
            found.setdefault(*package)
        elif match is not None:
            found.setdefault(match["name"], match["version"])
    libc = libc_version(files)
    if libc is not None:
        found["libc"] = libc
    return dict(sorted(found.items()))


def libc_version(files: MappedFiles) -> str | None:
    """``glibc 2.36`` or ``musl 1.2.4``, by what the library says of itself."""
    for start, words, pattern, name in (
        ("libc.so.6", b"GNU C Library ", _GLIBC, "glibc"),
        ("libc-2.", b"GNU C Library ", _GLIBC, "glibc"),
        ("ld-musl", b"\x001.", _MUSL, "musl"),
        ("libc.musl", b"\x001.", _MUSL, "musl"),
    ):
        file = files.named(start)
        if file is None and name == "musl":
            file = next((one for one in files.files if one.name == "libc.so"), None)  # Debian's name for the loader
        if file is None:
            continue
        try:
            with Path(file.readable_path).open("rb") as opened:
                data = mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ)
                match = pattern.search(data, max(data.find(words), 0))
        except (OSError, ValueError):
            return None
        return f"{name} {match[1].decode()}" if match else name
    return None


def python_version(memory: Memory, files: MappedFiles) -> str | None:
    """``3.11.7``, from ``Py_Version`` (CPython 3.11 and later); ``3.10`` from a name where that is all there is."""
    named = [file for file in files.files if "python" in file.name]
    # Extensions bear the name as well, and there may be hundreds of them; none of them defines it.
    for file in sorted(named, key=lambda file: not file.name.startswith(("python", "libpython"))):
        at = file.symbol("Py_Version")
        data = memory.exactly(at, 4) if at is not None else None
        if data is not None:
            number = int.from_bytes(data, "little")
            return _release(number)
    for file in files.files:
        match = re.search(r"python(3\.\d+)", file.path)
        if match is not None:
            return match[1]
    return None


def _release(number: int) -> str:
    """``PY_VERSION_HEX`` (patchlevel.h): major, minor, micro, level and serial."""
    level = {0xA: "a", 0xB: "b", 0xC: "rc"}.get(number >> 4 & 0xF)
    suffix = f"{level}{number & 0xF}" if level else ""
    return f"{number >> 24}.{number >> 16 & 0xFF}.{number >> 8 & 0xFF}{suffix}"
